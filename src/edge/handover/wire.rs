//! What the two processes say to each other, byte by byte.
//!
//! The successor greets with the version, then says words of one byte; answers are frames, their length in
//! front. Sockets go along with the first byte of their answer. Both ends give up after a while.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::super::address::{Address, Inherited};

/// Another version is not understood, and takes over nothing.
const GREETING: &[u8] = b"warmgate hand-over 1\n";

/// Between two words: in between the successor looks at its whole fleet.
const PATIENCE: Duration = Duration::from_secs(30);

/// Clients' addresses, at most 64, and the admin's; the system's own limit is 253.
const SOCKETS_MAX: usize = 128;

/// For the names of so many.
const NAMES_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Sockets,
    State,
    Taken,
}

const WORDS: [(u8, Word); 3] = [(b's', Word::Sockets), (b'm', Word::State), (b't', Word::Taken)];

/// Which address a socket is for; they come in the order of the sockets.
#[derive(Serialize, Deserialize)]
struct Name {
    written: SocketAddr,
    address: SocketAddr,
}

/// Whoever is at the other end runs as the same user, or as root.
pub fn is_same_user(stream: &UnixStream) -> io::Result<()> {
    let other = socket_peercred(stream)?.uid;
    if other == geteuid() || other.is_root() {
        return Ok(());
    }
    Err(io::Error::other(format!("the other process is another user's ({})", other.as_raw())))
}

pub fn be_patient(stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

pub fn greet(mut stream: &UnixStream) -> io::Result<()> {
    stream.write_all(GREETING)
}

/// False: the other end only wanted to know whether somebody is here.
pub fn is_greeted(mut stream: &UnixStream) -> io::Result<bool> {
    let mut heard = vec![0; GREETING.len()];
    match stream.read_exact(&mut heard) {
        Ok(()) if heard == GREETING => Ok(true),
        Ok(()) => Err(io::Error::other("it speaks another version of this")),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

pub fn say(mut stream: &UnixStream, word: Word) -> io::Result<()> {
    let byte = WORDS.iter().find(|(_, other)| *other == word).map_or(0, |(byte, _)| *byte);
    stream.write_all(&[byte])
}

pub fn hear(mut stream: &UnixStream) -> io::Result<Word> {
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    let word = WORDS.iter().find(|(other, _)| [*other] == byte).map(|(_, word)| *word);
    word.ok_or_else(|| io::Error::other("it says what is not understood"))
}

pub fn give_frame(mut stream: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(bytes)
}

pub fn take_frame(mut stream: &UnixStream, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > bytes_max {
        return Err(io::Error::other("an answer that is too long"));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub fn give_sockets(stream: &UnixStream, addresses: &[Address]) -> io::Result<()> {
    let sockets: Vec<BorrowedFd> = addresses.iter().map(|address| address.socket.as_fd()).collect();
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(io::Error::other("too many addresses"));
    }
    sendmsg(stream, &[IoSlice::new(b"!")], &mut control, SendFlags::empty())?;
    let names = addresses.iter().map(|address| Name { written: address.written, address: address.address });
    give_frame(stream, &serde_json::to_vec(&names.collect::<Vec<_>>())?)
}

pub fn take_sockets(stream: &UnixStream) -> io::Result<Inherited> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let read = recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if read.bytes == 0 {
        return Err(io::Error::other("it closed the connection: another new process may have been first"));
    }
    let mut sockets: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(taken) = message {
            sockets.extend(taken);
        }
    }
    let names: Vec<Name> = serde_json::from_slice(&take_frame(stream, NAMES_BYTES_MAX)?)?;
    if names.len() != sockets.len() {
        return Err(io::Error::other("it sent not as many sockets as it named"));
    }
    let address = |(name, socket): (Name, OwnedFd)| Address {
        address: name.address,
        written: name.written,
        socket: TcpListener::from(socket),
    };
    Ok(names.into_iter().zip(sockets).map(address).collect())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn sockets_arrive_with_their_names_and_still_listen() {
        let (old, new) = UnixStream::pair().unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let given: Vec<Address> = (0..64).map(|_| Address::open(any, &mut Vec::new()).unwrap()).collect();
        let waiting = TcpStream::connect(given[7].address).unwrap();

        give_sockets(&old, &given).unwrap();
        let taken = take_sockets(&new).unwrap();

        let places = |all: &[Address]| all.iter().map(|a| (a.written, a.address)).collect::<Vec<_>>();
        assert_eq!(places(&taken), places(&given));
        drop(given);
        let (_, from) = taken[7].socket.accept().unwrap();
        assert_eq!(from, waiting.local_addr().unwrap(), "who waited is not refused");
    }

    #[test]
    fn words_and_frames() {
        let (old, new) = UnixStream::pair().unwrap();
        greet(&new).unwrap();
        assert!(is_greeted(&old).unwrap());
        for (_, word) in WORDS {
            say(&new, word).unwrap();
            assert_eq!(hear(&old).unwrap(), word);
        }
        give_frame(&old, b"abc").unwrap();
        assert_eq!(take_frame(&new, 3).unwrap(), b"abc");
        give_frame(&old, b"abcd").unwrap();
        assert!(take_frame(&new, 3).is_err());
        is_same_user(&old).unwrap();
    }

    #[test]
    fn strangers_are_told_apart() {
        let (old, new) = UnixStream::pair().unwrap();
        (&new).write_all(b"warmgate hand-over 9\n").unwrap();
        assert!(is_greeted(&old).is_err());
        (&new).write_all(b"?").unwrap();
        assert!(hear(&old).is_err());
        drop(new);
        assert!(!is_greeted(&old).unwrap());
    }
}
