//! Why a token is not believed.

use jsonwebtoken::errors::{Error, ErrorKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    TooLong,
    Unreadable,
    /// Its key does not sign that way, or nobody's does.
    Algorithm,
    /// It names no key, and there are several.
    NoSigner,
    UnknownSigner,
    Signature,
    /// A claim is missing, or is no number where it must be one.
    Claims,
    Expired,
    NotYet,
    Issuer,
    Audience,
    NoTenant,
}

impl TokenFault {
    /// What `name` says of each.
    pub const NAMES: [&'static str; 11] = [
        "token_too_long",
        "token_unreadable",
        "token_algorithm",
        "token_signer",
        "token_signature",
        "token_claims",
        "token_expired",
        "token_not_yet",
        "token_issuer",
        "token_audience",
        "token_no_tenant",
    ];

    /// As it is counted.
    pub fn name(self) -> &'static str {
        match self {
            TokenFault::TooLong => "token_too_long",
            TokenFault::Unreadable => "token_unreadable",
            TokenFault::Algorithm => "token_algorithm",
            TokenFault::NoSigner | TokenFault::UnknownSigner => "token_signer",
            TokenFault::Signature => "token_signature",
            TokenFault::Claims => "token_claims",
            TokenFault::Expired => "token_expired",
            TokenFault::NotYet => "token_not_yet",
            TokenFault::Issuer => "token_issuer",
            TokenFault::Audience => "token_audience",
            TokenFault::NoTenant => "token_no_tenant",
        }
    }

    /// To the client; tells nothing of the token or of what is configured here.
    pub fn message(self) -> &'static str {
        match self {
            TokenFault::TooLong => "this token is too long; ask its issuer for one with fewer claims",
            TokenFault::Unreadable => "this key is not known here, and it is no token that can be read",
            TokenFault::Algorithm => "this token is signed in a way that is not taken here, or not at all",
            TokenFault::NoSigner => "this token does not say which key signed it (`kid`)",
            TokenFault::UnknownSigner => "this token is signed by a key that is not known here; get another token",
            TokenFault::Signature => "the signature of this token is wrong",
            TokenFault::Claims => "this token lacks a claim that is needed here, or it is not of the right form",
            TokenFault::Expired => "this token has expired; get another from its issuer",
            TokenFault::NotYet => "this token is not valid yet; the clocks may differ",
            TokenFault::Issuer => "this token is from an issuer who is not trusted here",
            TokenFault::Audience => "this token is for another audience",
            TokenFault::NoTenant => "this token names no tenant of this Warmgate; ask whoever runs it",
        }
    }
}

impl From<Error> for TokenFault {
    fn from(error: Error) -> TokenFault {
        match error.kind() {
            ErrorKind::ExpiredSignature => TokenFault::Expired,
            ErrorKind::ImmatureSignature => TokenFault::NotYet,
            ErrorKind::InvalidIssuer => TokenFault::Issuer,
            ErrorKind::InvalidAudience => TokenFault::Audience,
            ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) => TokenFault::Claims,
            ErrorKind::InvalidAlgorithm => TokenFault::Algorithm,
            ErrorKind::InvalidSignature | ErrorKind::InvalidKeyFormat => TokenFault::Signature,
            _ => TokenFault::Unreadable,
        }
    }
}
