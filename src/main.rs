//! The program: hands the arguments to `cli` and exits with its code.

use std::process::ExitCode;

fn main() -> ExitCode {
    warmgate::cli::main()
}
