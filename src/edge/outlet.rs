//! Where lines for standard error leave, so that nobody waits for whoever reads them.
//!
//! Access lines are gathered for a moment and written many at a time, by a thread of their own. Events are written
//! at once, if that can be had without waiting. What finds no room is dropped. A line is never written in part, and what
//! was taken is lost only where the process ends and its reader has stopped.

use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use once_cell::sync::Lazy;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Access lines are written that long after they were formed, at the latest, while their reader keeps up.
const LINE_DELAY_MAX: Duration = Duration::from_millis(100);

/// Lines that wait for a slow reader; some ten thousand.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// A pipe that says it takes something takes as much as this at least (POSIX' `PIPE_BUF` on Linux).
const AT_ONCE_BYTES_MAX: usize = 4096;

/// For what is left when the process ends.
pub const AT_THE_END_MAX: Duration = Duration::from_millis(500);

/// Of memory, kept between two times of writing.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// The process has one standard error, and one way to it.
static STDERR: Lazy<Outlet> = Lazy::new(|| Outlet::new(Box::new(Stderr)));

pub fn stderr() -> &'static Outlet {
    &STDERR
}

/// What lines are written to.
pub trait Sink: Write + Send {
    /// Takes a few lines without anybody waiting.
    fn is_ready(&self) -> bool;
}

pub struct Outlet {
    shared: Arc<Shared>,
    /// Runs from the first line on; `false`: the system gave none, and each line is written by whoever brings it.
    writer: OnceLock<bool>,
}

struct Shared {
    gathered: Mutex<Gathered>,
    news: Condvar,
    /// Told when all is written.
    written: Condvar,
    /// Held while it is written, so that lines stay in order.
    sink: Mutex<Box<dyn Sink>>,
}

#[derive(Default)]
struct Gathered {
    lines: Vec<u8>,
    /// Some of them are not to wait for more.
    is_urgent: bool,
    /// Some were taken to be written.
    is_writing: bool,
    is_closed: bool,
}

impl Outlet {
    pub fn new(sink: Box<dyn Sink>) -> Outlet {
        let (news, written) = Default::default();
        let shared = Shared { gathered: Mutex::default(), news, written, sink: Mutex::new(sink) };
        Outlet { shared: Arc::new(shared), writer: OnceLock::new() }
    }

    /// Adds the line that `form` appends, without its end; false: there was no room for it.
    pub fn add(&self, form: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut gathered = self.shared.gathered.lock();
        let is_first = gathered.lines.is_empty();
        if gathered.lines.len() >= WAITING_BYTES_MAX {
            return false;
        }
        form(&mut gathered.lines);
        gathered.lines.push(b'\n');
        drop(gathered);
        if is_first {
            self.wake();
        }
        true
    }

    /// Writes whole lines now, or soon where somebody would have to wait for it.
    pub fn say(&self, lines: &[u8]) {
        let mut gathered = self.shared.gathered.lock();
        if gathered.lines.len() >= WAITING_BYTES_MAX {
            return;
        }
        gathered.lines.extend_from_slice(lines);
        gathered.is_urgent = true;
        let is_short = gathered.lines.len() <= AT_ONCE_BYTES_MAX;
        drop(gathered);
        match self.shared.sink.try_lock().filter(|sink| is_short && sink.is_ready()) {
            Some(mut sink) => self.shared.write(&mut **sink, AT_ONCE_BYTES_MAX),
            None => self.wake(),
        }
    }

    /// Waits until all is written, for so long at most.
    pub fn finish(&self, at_most: Duration) {
        let deadline = Instant::now() + at_most;
        let mut gathered = self.shared.gathered.lock();
        gathered.is_urgent = true;
        self.shared.news.notify_one();
        while !gathered.lines.is_empty() || gathered.is_writing {
            if self.shared.written.wait_until(&mut gathered, deadline).timed_out() {
                return;
            }
        }
    }

    fn wake(&self) {
        let start = || {
            let shared = self.shared.clone();
            thread::Builder::new().name("log".into()).spawn(move || shared.write_on()).is_ok()
        };
        match self.writer.get_or_init(start) {
            true => drop(self.shared.news.notify_one()),
            false => self.shared.write(&mut **self.shared.sink.lock(), usize::MAX),
        }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.shared.gathered.lock().is_closed = true;
        self.shared.news.notify_one();
    }
}

impl Shared {
    /// Writes what is gathered, until there will be no more.
    fn write_on(&self) {
        while self.wait() {
            self.write(&mut **self.sink.lock(), usize::MAX);
        }
    }

    /// Waits for lines, and for those that come about then; false: there will be none.
    fn wait(&self) -> bool {
        let mut gathered = self.gathered.lock();
        while gathered.lines.is_empty() && !gathered.is_closed {
            self.news.wait(&mut gathered);
        }
        let due = Instant::now() + LINE_DELAY_MAX;
        while !gathered.is_urgent && !gathered.is_closed && !self.news.wait_until(&mut gathered, due).timed_out() {}
        !gathered.lines.is_empty() || !gathered.is_closed
    }

    /// Writes all that is gathered, unless that is more than `bytes_max`.
    fn write(&self, sink: &mut dyn Sink, bytes_max: usize) {
        let mut gathered = self.gathered.lock();
        if gathered.lines.len() > bytes_max {
            drop(gathered);
            self.news.notify_one();
            return;
        }
        let mut lines = std::mem::take(&mut gathered.lines);
        (gathered.is_urgent, gathered.is_writing) = (false, true);
        drop(gathered);
        // Nobody is left to be told of a reader that has gone.
        let _ = sink.write_all(&lines).and_then(|()| sink.flush());
        lines.clear();
        let mut gathered = self.gathered.lock();
        gathered.is_writing = false;
        if gathered.lines.is_empty() && lines.capacity() <= KEPT_BYTES_MAX {
            gathered.lines = lines;
        }
        self.written.notify_all();
    }
}

/// Without the lock of `std`, which whoever waits for a reader would hold against all others.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stderr(), bytes)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Sink for Stderr {
    fn is_ready(&self) -> bool {
        let mut ready = [PollFd::from_borrowed_fd(rustix::stdio::stderr(), PollFlags::OUT)];
        poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Sink for Page {
        fn is_ready(&self) -> bool {
            !self.0.is_locked()
        }
    }

    const PATIENCE: Duration = Duration::from_secs(30);

    fn outlet(page: &Page) -> Outlet {
        Outlet::new(Box::new(page.clone()))
    }

    fn line(text: &str) -> impl FnOnce(&mut Vec<u8>) {
        move |lines| lines.extend_from_slice(text.as_bytes())
    }

    #[test]
    fn lines_come_out_whole_and_in_order() {
        let page = Page::default();
        let outlet = outlet(&page);
        for n in 0..1000 {
            match n % 97 {
                0 => outlet.say(format!("{n}\n").as_bytes()),
                _ => assert!(outlet.add(line(&n.to_string()))),
            }
        }
        outlet.finish(PATIENCE);
        let expected: String = (0..1000).map(|n| format!("{n}\n")).collect();
        assert_eq!(String::from_utf8_lossy(&page.0.lock()), expected);
    }

    #[test]
    fn an_event_is_written_when_it_was_said() {
        let page = Page::default();
        let outlet = outlet(&page);
        outlet.say(b"now\n");
        assert_eq!(*page.0.lock(), b"now\n");
    }

    #[test]
    fn a_reader_that_does_not_read_costs_lines_and_holds_up_nobody() {
        let page = Page::default();
        let outlet = outlet(&page);
        let long = "x".repeat(1 << 20);
        let reader = page.0.lock();
        // The writer may have taken some of them before the next come.
        let taken = (0..20).filter(|_| outlet.add(line(&long))).count();
        assert!((4..=8).contains(&taken), "{taken}");
        (0..1000).for_each(|_| outlet.say(b"an event\n"));
        let began = Instant::now();
        outlet.finish(Duration::from_millis(50));
        assert!(began.elapsed() < PATIENCE, "the end does not wait for it");
        drop(reader);
        outlet.finish(PATIENCE);
        assert!(outlet.add(line("a")), "there is room again");
    }

    #[test]
    fn what_was_gathered_is_written_before_the_writer_ends() {
        let page = Page::default();
        let outlet = outlet(&page);
        let shared = Arc::downgrade(&outlet.shared);
        assert!(outlet.add(line("last")));
        drop(outlet);
        while shared.strong_count() > 0 {
            thread::yield_now();
        }
        assert_eq!(*page.0.lock(), b"last\n");
    }
}
