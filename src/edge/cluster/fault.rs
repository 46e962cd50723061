//! What is wrong with Redis, in words that say what to look at.
//!
//! Nothing that was asked for and no secret stands in them.

use std::fmt;

use redis::{ErrorKind, RedisError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    Refused,
    TimedOut,
    Broken,
    NoSuchHost,
    Certificate,
    /// With the first word of its answer, as in all that follow.
    Auth(String),
    ReadOnly(String),
    Full(String),
    WrongType(String),
    Busy(String),
    Down(String),
    Silent,
    /// Its sentinels, or none of the hosts, lead to a master.
    NoMaster,
    Reconfigured,
    Other(String),
}

impl Fault {
    pub const NAMES: [&str; 15] = [
        "refused",
        "timed_out",
        "broken",
        "no_such_host",
        "certificate",
        "auth",
        "read_only",
        "full",
        "wrong_type",
        "busy",
        "down",
        "silent",
        "no_master",
        "reconfigured",
        "other",
    ];

    pub fn of(why: &RedisError) -> Fault {
        if let Some(code) = code_of(why) {
            return Fault::answered(code);
        }
        // What lies below an error of the connection can only be read.
        let text = why.to_string();
        match why.kind() {
            _ if text.contains("peer certificate") => Fault::Certificate,
            _ if text.contains("lookup address") => Fault::NoSuchHost,
            ErrorKind::MasterNameNotFoundBySentinel => Fault::NoMaster,
            ErrorKind::AuthenticationFailed => Fault::Auth("at once".into()),
            ErrorKind::ClusterConnectionNotFound => Fault::Down("no node answers".into()),
            _ if why.is_timeout() => Fault::TimedOut,
            _ if why.is_connection_refusal() => Fault::Refused,
            _ if why.is_io_error() => Fault::Broken,
            _ => Fault::Other(why.category().to_owned()),
        }
    }

    fn answered(code: String) -> Fault {
        match code.as_str() {
            "NOAUTH" | "WRONGPASS" | "NOPERM" | "ERRAUTH" => Fault::Auth(code),
            "READONLY" => Fault::ReadOnly(code),
            "OOM" | "MISCONF" | "NOREPLICAS" => Fault::Full(code),
            "WRONGTYPE" => Fault::WrongType(code),
            "LOADING" | "BUSY" | "TRYAGAIN" => Fault::Busy(code),
            "CLUSTERDOWN" | "MASTERDOWN" => Fault::Down(code),
            _ => Fault::Other(format!("it answers {code}")),
        }
    }

    /// For metrics.
    pub fn name(&self) -> &'static str {
        let at = match self {
            Fault::Refused => 0,
            Fault::TimedOut => 1,
            Fault::Broken => 2,
            Fault::NoSuchHost => 3,
            Fault::Certificate => 4,
            Fault::Auth(_) => 5,
            Fault::ReadOnly(_) => 6,
            Fault::Full(_) => 7,
            Fault::WrongType(_) => 8,
            Fault::Busy(_) => 9,
            Fault::Down(_) => 10,
            Fault::Silent => 11,
            Fault::NoMaster => 12,
            Fault::Reconfigured => 13,
            Fault::Other(_) => 14,
        };
        Fault::NAMES[at]
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Fault::Refused => f.write_str("nothing listens there: the connection is refused"),
            Fault::TimedOut => f.write_str("no answer in time"),
            Fault::Broken => f.write_str("the connection is broken"),
            Fault::NoSuchHost => f.write_str("its host name is not found"),
            Fault::Certificate => f.write_str("its certificate is not trusted"),
            Fault::Auth(code) => write!(f, "the user or the password is refused, or may not do this ({code})"),
            Fault::ReadOnly(code) => write!(f, "it is read-only, as replicas of Redis are ({code})"),
            Fault::Full(code) if code == "OOM" => write!(f, "its memory is full ({code})"),
            Fault::Full(code) => write!(f, "it cannot keep what it is given ({code})"),
            Fault::WrongType(code) => write!(f, "somebody else uses a key with this prefix ({code})"),
            Fault::Busy(code) => write!(f, "it loads its data or is held up ({code})"),
            Fault::Down(code) => write!(f, "its cluster or its master is down ({code})"),
            Fault::Silent => f.write_str("nothing is heard on its channel"),
            Fault::NoMaster => f.write_str("its sentinels know no master of this name"),
            Fault::Reconfigured => f.write_str("it is configured anew"),
            Fault::Other(what) => f.write_str(what),
        }
    }
}

/// The first word of what the server answered; `None`: it did not.
pub fn code_of(why: &RedisError) -> Option<String> {
    why.clone().into_server_errors()?.first().map(|(_, error)| error.code().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, name: &str, words: &str) {
        let mut parser = redis::Parser::new();
        let why = parser.parse_value(answer.as_bytes()).and_then(redis::Value::extract_error).expect_err("an error");
        let fault = Fault::of(&why);
        assert_eq!((fault.name(), fault.to_string().as_str()), (name, words), "{answer}");
    }

    #[test]
    fn what_redis_answers_is_said_in_plain_words() {
        let auth = "the user or the password is refused, or may not do this";
        check("-WRONGPASS invalid username-password pair\r\n", "auth", &format!("{auth} (WRONGPASS)"));
        check("-NOAUTH Authentication required.\r\n", "auth", &format!("{auth} (NOAUTH)"));
        check("-READONLY You can't write\r\n", "read_only", "it is read-only, as replicas of Redis are (READONLY)");
        check("-OOM command not allowed\r\n", "full", "its memory is full (OOM)");
        check("-WRONGTYPE Operation\r\n", "wrong_type", "somebody else uses a key with this prefix (WRONGTYPE)");
        check("-LOADING Redis is\r\n", "busy", "it loads its data or is held up (LOADING)");
        check("-ODD canary\r\n", "other", "it answers ODD");
    }

    #[test]
    fn what_the_connection_says_is_told_apart() {
        let of = |kind: std::io::ErrorKind| Fault::of(&RedisError::from(std::io::Error::from(kind)));
        assert_eq!(of(std::io::ErrorKind::ConnectionRefused), Fault::Refused);
        assert_eq!(of(std::io::ErrorKind::TimedOut), Fault::TimedOut);
        assert_eq!(of(std::io::ErrorKind::BrokenPipe), Fault::Broken);
        let tls = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        assert_eq!(Fault::of(&RedisError::from(std::io::Error::other(tls))), Fault::Certificate);
    }
}
