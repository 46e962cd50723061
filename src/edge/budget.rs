//! The memory that request bodies may use, all requests together.
//!
//! What counts is what is allocated: the capacity of the buffers bodies are read and decoded into,
//! never what a header promises. Memory is booked before it is allocated and given back when the
//! last clone or slice of the finished `Bytes` is dropped, so no caller can forget to. Whoever finds
//! the budget spent waits, but not for ever. Refuses nothing by itself to a body that fits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One permit: fine enough that small bodies are not overcharged, coarse enough that a permit count
/// fits tokio's `u32` up to 4 TiB.
const GRAIN_BYTES: usize = 1024;

/// How many times a buffer grows that has become too small.
const GROWTH: usize = 2;

/// The same where the length was told: room that most likely will be needed.
const GROWTH_TOLD: usize = 8;

/// How long a body will be in all.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    Told(usize),
    AtMost(usize),
}

/// The budget could not be had within the allowed wait.
#[derive(Debug, PartialEq, Eq)]
pub struct Spent;

/// A number of bytes that many bodies share. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct Budget {
    permits: Arc<Semaphore>,
    size: Arc<Mutex<Size>>,
}

/// In grains.
#[derive(Debug)]
struct Size {
    whole: usize,
    /// Taken from the budget while somebody held it; to be kept as it comes back.
    owed: usize,
}

impl Budget {
    pub fn new(bytes: usize) -> Budget {
        let whole = (bytes / GRAIN_BYTES).min(Semaphore::MAX_PERMITS);
        Budget { permits: Arc::new(Semaphore::new(whole)), size: Arc::new(Mutex::new(Size { whole, owed: 0 })) }
    }

    /// Makes it so large from now on. What is held beyond stays held, and nothing new gets in until so
    /// much has come back.
    pub fn resize(&self, bytes: usize) {
        let whole = (bytes / GRAIN_BYTES).min(Semaphore::MAX_PERMITS);
        let mut size = self.size.lock();
        let (more, less) = (whole.saturating_sub(size.whole), size.whole.saturating_sub(whole));
        size.whole = whole;
        let forgiven = more.min(size.owed);
        size.owed -= forgiven;
        self.permits.add_permits(more - forgiven);
        size.owed += less - self.permits.forget_permits(less);
    }

    /// Bytes that nobody holds now.
    pub fn free_bytes(&self) -> usize {
        self.permits.available_permits() * GRAIN_BYTES
    }

    /// Bytes that bodies hold now.
    pub fn held_bytes(&self) -> usize {
        let size = self.size.lock();
        (size.whole + size.owed).saturating_sub(self.permits.available_permits()) * GRAIN_BYTES
    }

    /// A buffer without memory yet; its first waits at most `wait` for the budget, each growth a tenth of that.
    pub fn buffer(&self, wait: Duration) -> Buffer {
        Buffer { bytes: Vec::new(), booked: None, budget: self.clone(), wait }
    }

    /// Books bytes that exist already, such as a body rewritten in place of another.
    pub fn adopt(&self, bytes: Vec<u8>) -> Result<Bytes, Spent> {
        let permits = Arc::clone(&self.permits);
        let permit = permits.try_acquire_many_owned(grains(bytes.capacity())?).map_err(|_| Spent)?;
        Ok(Bytes::from_owner(Booked { bytes, _share: Some(self.share(permit)) }))
    }

    async fn book(&self, bytes: usize, wait: Duration) -> Result<Share, Spent> {
        let booking = Arc::clone(&self.permits).acquire_many_owned(grains(bytes)?);
        match tokio::time::timeout(wait, booking).await {
            Ok(Ok(permit)) => Ok(self.share(permit)),
            Ok(Err(_)) | Err(_) => Err(Spent),
        }
    }

    fn share(&self, permit: OwnedSemaphorePermit) -> Share {
        Share { permit: Some(permit), size: self.size.clone() }
    }
}

/// A growing body. Its capacity is booked at every moment.
pub struct Buffer {
    bytes: Vec<u8>,
    booked: Option<Share>,
    budget: Budget,
    wait: Duration,
}

impl Buffer {
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Makes room for at least `capacity` bytes in all.
    pub async fn reserve_total(&mut self, capacity: usize) -> Result<(), Spent> {
        let more = capacity.saturating_sub(self.bytes.capacity());
        if more == 0 {
            return Ok(());
        }
        // Those who hold some and want more could wait for each other, and whoever comes after them for all.
        let wait = if self.booked.is_some() { self.wait / 10 } else { self.wait };
        let fresh = self.budget.book(more, wait).await?;
        match &mut self.booked {
            Some(booked) => booked.merge(fresh),
            None => self.booked = Some(fresh),
        }
        self.bytes.reserve_exact(capacity - self.bytes.len());
        Ok(())
    }

    /// Appends a piece. Room grows by a factor, so that little is copied, but not past what is expected
    /// while the piece fits in that: a told length is never overshot.
    pub async fn push(&mut self, piece: &[u8], length: Length) -> Result<(), Spent> {
        let needed = self.bytes.len() + piece.len();
        if needed > self.bytes.capacity() {
            let (times, expected) = match length {
                Length::Told(bytes) => (GROWTH_TOLD, bytes),
                Length::AtMost(bytes) => (GROWTH, bytes),
            };
            let grown = self.bytes.capacity().saturating_mul(times);
            self.reserve_total(grown.min(expected).max(needed)).await?;
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// The finished body. Room that was not needed is given back.
    pub fn freeze(mut self) -> Bytes {
        if self.bytes.capacity() - self.bytes.len() > self.bytes.len() / 4 {
            self.bytes.shrink_to_fit();
        }
        if let (Some(booked), Ok(kept)) = (&mut self.booked, grains(self.bytes.capacity())) {
            booked.keep(kept as usize);
        }
        Bytes::from_owner(Booked { bytes: self.bytes, _share: self.booked })
    }
}

/// What is held of the budget; its end gives it back, as far as the budget still has it.
struct Share {
    permit: Option<OwnedSemaphorePermit>,
    size: Arc<Mutex<Size>>,
}

impl Share {
    fn merge(&mut self, mut other: Share) {
        match (&mut self.permit, other.permit.take()) {
            (Some(permit), Some(more)) => permit.merge(more),
            (permit, more) => *permit = permit.take().or(more),
        }
    }

    /// Gives back all but so many grains.
    fn keep(&mut self, grains: usize) {
        let Some(permit) = &mut self.permit else { return };
        let surplus = permit.split(permit.num_permits().saturating_sub(grains));
        drop(Share { permit: surplus, size: self.size.clone() });
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some(mut permit) = self.permit.take() else { return };
        let mut size = self.size.lock();
        let kept = size.owed.min(permit.num_permits());
        size.owed -= kept;
        if let Some(owed) = permit.split(kept) {
            owed.forget();
        }
    }
}

/// Bytes and their place in the budget; they end together.
struct Booked {
    bytes: Vec<u8>,
    _share: Option<Share>,
}

impl AsRef<[u8]> for Booked {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn grains(bytes: usize) -> Result<u32, Spent> {
    u32::try_from(bytes.div_ceil(GRAIN_BYTES)).map_err(|_| Spent)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn what_is_held_is_what_is_allocated() {
        let budget = Budget::new(100 * 1024);
        let mut buffer = budget.buffer(WAIT);
        buffer.push(&[7; 10 * 1024], Length::AtMost(usize::MAX)).await.unwrap();
        buffer.push(&[7; 1024], Length::AtMost(usize::MAX)).await.unwrap();
        assert_eq!(budget.free_bytes(), 80 * 1024, "doubled from 10 to 20 KiB");
        let body = buffer.freeze();
        assert_eq!(body.len(), 11 * 1024);
        assert_eq!(budget.free_bytes(), 89 * 1024, "the unused room came back");
    }

    #[tokio::test]
    async fn a_known_length_is_not_overshot() {
        let budget = Budget::new(100 * 1024);
        let mut buffer = budget.buffer(WAIT);
        buffer.push(&[7; 10 * 1024], Length::Told(12 * 1024)).await.unwrap();
        buffer.push(&[7; 2 * 1024], Length::Told(12 * 1024)).await.unwrap();
        assert_eq!(budget.free_bytes(), 88 * 1024);
    }

    #[tokio::test]
    async fn room_for_a_told_length_grows_faster() {
        for (length, free_kib) in
            [(Length::AtMost(60 * 1024), 96), (Length::Told(60 * 1024), 84), (Length::Told(6 * 1024), 94)]
        {
            let budget = Budget::new(100 * 1024);
            let mut buffer = budget.buffer(WAIT);
            buffer.reserve_total(2 * 1024).await.unwrap();
            buffer.push(&[7; 3 * 1024], length).await.unwrap();
            assert_eq!(budget.free_bytes(), free_kib * 1024, "{length:?}");
        }
    }

    #[tokio::test]
    async fn the_last_slice_gives_the_memory_back() {
        let budget = Budget::new(8 * 1024);
        let body = budget.adopt(vec![1; 4096]).unwrap();
        let slice = body.slice(10..20);
        drop(body);
        assert_eq!(budget.free_bytes(), 4096);
        drop(slice);
        assert_eq!(budget.free_bytes(), 8 * 1024);
    }

    #[tokio::test]
    async fn a_spent_budget_is_waited_for_but_not_for_ever() {
        let budget = Budget::new(8 * 1024);
        let held = budget.adopt(vec![1; 6 * 1024]).unwrap();
        assert_eq!(budget.buffer(WAIT).reserve_total(4096).await, Err(Spent));

        let mut patient = budget.buffer(Duration::from_secs(5));
        let release = tokio::spawn(async move {
            tokio::time::sleep(WAIT).await;
            drop(held);
        });
        assert_eq!(patient.reserve_total(4096).await, Ok(()));
        release.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_want_more_do_not_hold_each_other_up() {
        let budget = Budget::new(8 * 1024);
        let (mut one, mut other) = (budget.buffer(Duration::from_secs(5)), budget.buffer(Duration::from_secs(5)));
        assert_eq!((one.reserve_total(4096).await, other.reserve_total(4096).await), (Ok(()), Ok(())));
        let began = tokio::time::Instant::now();
        assert_eq!(one.reserve_total(8192).await, Err(Spent));
        assert!(began.elapsed() < Duration::from_secs(1));
        drop(one);
        assert_eq!(other.reserve_total(8192).await, Ok(()));
    }

    #[tokio::test]
    async fn another_size_holds_for_what_comes_back_too() {
        let budget = Budget::new(8 * 1024);
        let held = budget.adopt(vec![1; 6 * 1024]).unwrap();
        budget.resize(10 * 1024);
        assert_eq!(budget.free_bytes(), 4 * 1024);
        budget.resize(4 * 1024);
        assert_eq!(budget.free_bytes(), 0);
        assert!(budget.adopt(vec![1; 1024]).is_err(), "more is held than there may be");
        budget.resize(5 * 1024);
        assert_eq!(budget.free_bytes(), 0);
        drop(held);
        assert_eq!(budget.free_bytes(), 5 * 1024);
    }

    #[tokio::test]
    async fn more_than_the_whole_budget_is_refused() {
        let budget = Budget::new(8 * 1024);
        assert_eq!(budget.buffer(WAIT).reserve_total(9 * 1024).await, Err(Spent));
        assert!(budget.adopt(vec![0; 9 * 1024]).is_err());
    }
}
