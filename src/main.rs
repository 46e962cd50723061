//! The program: hands the arguments to `cli` and exits with its code.

use std::process::ExitCode;

/// Requests make and drop many small things on several threads, and bodies of megabytes must not stay behind.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    warmgate::cli::main()
}
