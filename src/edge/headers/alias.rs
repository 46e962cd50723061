//! Names that many servers read as others: behind CGI, WSGI and the like `X_Forwarded_For` and `X-Forwarded-For` are one
//! variable, and the client's would stand in the place of ours.

use http::HeaderName;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING, USER_AGENT};

use super::{
    CREDENTIALS, FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO, HOPS_NAME, NOT_SENT_ON, REQUEST_ID, SESSION, steers,
    tells_of_user,
};

/// What Warmgate says itself, or what tells how the body is to be read.
const OURS: [HeaderName; 11] = [
    HOST,
    CONTENT_TYPE,
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    TRANSFER_ENCODING,
    USER_AGENT,
    FORWARDED_HOST,
    FORWARDED_PROTO,
    FORWARDED_FOR,
    REQUEST_ID,
    HOPS_NAME,
];

/// Whether a name would be that of a header which is set or kept here, were its underscores dashes.
pub fn passes_for_another(name: &str) -> bool {
    if !name.contains('_') {
        return false;
    }
    let meant = name.replace('_', "-");
    OURS.iter().any(|ours| *ours == meant.as_str())
        || CREDENTIALS.iter().any(|part| meant.contains(part))
        || NOT_SENT_ON.contains(&meant.as_str())
        || meant == SESSION
        || steers(&meant)
        || tells_of_user(&meant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_underscores_stands_for_no_header_that_is_set_or_kept_here() {
        for name in [
            "x_forwarded_for",
            "x-forwarded_for",
            "content_length",
            "x_api_key",
            "x_openwebui_user_id",
            "x_override_model",
            "x_session_id",
            "x_real_ip",
            "remote_user",
            "x_warmgate_hops",
        ] {
            assert!(passes_for_another(name), "{name}");
        }
        for name in ["x-forwarded-for", "content-length", "my_header", "openai_organization", "x_stainless_lang"] {
            assert!(!passes_for_another(name), "{name}");
        }
    }
}
