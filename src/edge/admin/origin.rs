//! Which requests may be taken by POST: none that a page of somebody else's made a browser send.

use pingora::http::RequestHeader;

/// Browsers say where a request comes from, and pages cannot make them lie; programs say nothing.
pub fn is_no_foreign_page(head: &RequestHeader) -> bool {
    let text = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"));
    let own = |origin: &str| {
        let host = origin.split_once("://").map(|(_, host)| host);
        host.is_some() && host == text("host").or(head.uri.authority().map(|authority| authority.as_str()))
    };
    let same_site = text("sec-fetch-site").is_none_or(|site| matches!(site, "same-origin" | "none"));
    same_site && text("origin").is_none_or(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(headers: &[(&'static str, &str)], expected: bool) {
        let mut head = RequestHeader::build("POST", b"/fleet/explain", None).unwrap();
        head.insert_header("host", "127.0.0.1:9435").unwrap();
        for (name, value) in headers {
            head.insert_header(*name, *value).unwrap();
        }
        assert_eq!(is_no_foreign_page(&head), expected, "{headers:?}");
    }

    #[test]
    fn pages_of_others_may_not_post() {
        check(&[], true);
        check(&[("origin", "http://127.0.0.1:9435"), ("sec-fetch-site", "same-origin")], true);
        check(&[("sec-fetch-site", "none")], true);
        check(&[("sec-fetch-site", "cross-site")], false);
        check(&[("sec-fetch-site", "same-site")], false);
        check(&[("origin", "http://evil.test")], false);
        check(&[("origin", "http://127.0.0.1:9436")], false);
        check(&[("origin", "null")], false);
        check(&[("origin", "127.0.0.1:9435")], false);
    }
}
