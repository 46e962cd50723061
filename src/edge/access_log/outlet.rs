//! Where access lines leave: gathered for a moment and written many at a time, by a thread of their own.
//!
//! Whoever reads them slowly holds up no request: what finds no room is counted and dropped. A line is never
//! written in part, and nothing that was taken is lost but by a process that is killed.

use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use prometheus::IntCounter;

/// Lines are written that long after they were formed, at the latest, while their reader keeps up.
const LINE_DELAY_MAX: Duration = Duration::from_millis(100);

/// Lines that wait for a slow reader; some ten thousand.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// Of memory, kept between two times of writing.
const KEPT_BYTES_MAX: usize = 256 << 10;

pub struct Outlet {
    shared: Arc<Shared>,
    /// Runs from the first line on; `false`: the system gave none, and each line is written by whoever brings it.
    writer: OnceLock<bool>,
    /// Lines that found no room.
    dropped: IntCounter,
}

struct Shared {
    gathered: Mutex<Gathered>,
    news: Condvar,
    /// Held while it is written, so that lines stay in order.
    sink: Mutex<Box<dyn Write + Send>>,
}

#[derive(Default)]
struct Gathered {
    lines: Vec<u8>,
    is_closed: bool,
}

impl Outlet {
    pub fn new(sink: Box<dyn Write + Send>, dropped: IntCounter) -> Outlet {
        let shared = Shared { gathered: Mutex::default(), news: Condvar::new(), sink: Mutex::new(sink) };
        Outlet { shared: Arc::new(shared), writer: OnceLock::new(), dropped }
    }

    /// Adds the line that `form` appends, without its end.
    pub fn add(&self, form: impl FnOnce(&mut Vec<u8>)) {
        let mut gathered = self.shared.gathered.lock();
        let is_first = gathered.lines.is_empty();
        if gathered.lines.len() >= WAITING_BYTES_MAX {
            return self.dropped.inc();
        }
        form(&mut gathered.lines);
        gathered.lines.push(b'\n');
        drop(gathered);
        if is_first {
            self.wake();
        }
    }

    /// Writes all that is gathered now.
    pub fn flush(&self) {
        self.shared.flush();
    }

    fn wake(&self) {
        let start = || {
            let shared = self.shared.clone();
            thread::Builder::new().name("access log".into()).spawn(move || shared.write_on()).is_ok()
        };
        match self.writer.get_or_init(start) {
            true => drop(self.shared.news.notify_one()),
            false => self.flush(),
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
            thread::sleep(LINE_DELAY_MAX);
            self.flush();
        }
    }

    fn flush(&self) {
        let mut sink = self.sink.lock();
        let mut lines = std::mem::take(&mut self.gathered.lock().lines);
        // Nobody is left to be told of a reader that has gone.
        let _ = sink.write_all(&lines).and_then(|()| sink.flush());
        lines.clear();
        if lines.capacity() <= KEPT_BYTES_MAX {
            self.keep(lines);
        }
    }

    /// Waits for a line; false: there will be none.
    fn wait(&self) -> bool {
        let mut gathered = self.gathered.lock();
        while gathered.lines.is_empty() && !gathered.is_closed {
            self.news.wait(&mut gathered);
        }
        !gathered.lines.is_empty()
    }

    /// Uses memory again.
    fn keep(&self, room: Vec<u8>) {
        let mut gathered = self.gathered.lock();
        if gathered.lines.is_empty() {
            gathered.lines = room;
        }
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

    fn outlet(page: &Page) -> Outlet {
        let dropped = IntCounter::new("dropped", "of the test").expect("a counter");
        Outlet::new(Box::new(page.clone()), dropped)
    }

    fn line(text: &str) -> impl FnOnce(&mut Vec<u8>) {
        move |lines| lines.extend_from_slice(text.as_bytes())
    }

    #[test]
    fn lines_come_out_whole_and_in_order() {
        let page = Page::default();
        let outlet = outlet(&page);
        for n in 0..1000 {
            outlet.add(line(&n.to_string()));
            if n % 97 == 0 {
                outlet.flush();
            }
        }
        outlet.flush();
        let expected: String = (0..1000).map(|n| format!("{n}\n")).collect();
        assert_eq!(String::from_utf8_lossy(&page.0.lock()), expected);
    }

    #[test]
    fn a_reader_that_does_not_read_costs_lines_and_no_memory() {
        let page = Page::default();
        let outlet = outlet(&page);
        let long = "x".repeat(1 << 20);
        let reader = page.0.lock();
        // The writer may have taken the first of them when the second comes.
        (0..20).for_each(|_| outlet.add(line(&long)));
        assert!((12..=16).contains(&outlet.dropped.get()), "{}", outlet.dropped.get());
        drop(reader);
        outlet.flush();
        let before = outlet.dropped.get();
        outlet.add(line("a"));
        assert_eq!(outlet.dropped.get(), before, "there is room again");
    }

    #[test]
    fn what_was_gathered_is_written_before_the_writer_ends() {
        let page = Page::default();
        let outlet = outlet(&page);
        let shared = Arc::downgrade(&outlet.shared);
        outlet.add(line("last"));
        drop(outlet);
        while shared.strong_count() > 0 {
            thread::yield_now();
        }
        assert_eq!(*page.0.lock(), b"last\n");
    }
}
