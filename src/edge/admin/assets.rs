//! The dashboard's own files, as they are in the program: nothing is fetched from anywhere else.

use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY};
use http::header::{X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};

const PAGE: &str = include_str!("../dashboard/page.html");
const STYLE: &str = include_str!("../dashboard/dashboard.css");
const SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("../dashboard/make.js"),
    include_str!("../dashboard/chart.js"),
    include_str!("../dashboard/decisions.js"),
    include_str!("../dashboard/panels.js"),
    include_str!("../dashboard/cluster.js"),
    include_str!("../dashboard/tenants.js"),
    include_str!("../dashboard/reloads.js"),
    include_str!("../dashboard/map.js"),
    include_str!("../dashboard/node.js"),
    include_str!("../dashboard/nodes.js"),
    include_str!("../dashboard/feed.js"),
);

/// Scripts, styles and data from here alone, nothing inline, and in nobody's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 5] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-cache"),
];

pub fn is_asset(path: &str) -> bool {
    ["/", "/dashboard.css", "/dashboard.js"].contains(&path)
}

/// The file at that path; they hold nothing of the fleet, so anybody may have them.
pub fn asset(path: &str) -> Option<Response<Vec<u8>>> {
    let (content_type, text) = match path {
        "/" => ("text/html; charset=utf-8", PAGE),
        "/dashboard.css" => ("text/css; charset=utf-8", STYLE),
        "/dashboard.js" => ("text/javascript; charset=utf-8", SCRIPT),
        _ => return None,
    };
    let mut response = super::text(200, content_type, text.into());
    let headers = HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value)));
    response.headers_mut().extend(headers);
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_no_token_is_the_page() {
        for path in ["/", "/dashboard.css", "/dashboard.js", "/fleet/status", "/metrics", "//", "/dashboard.js/"] {
            assert_eq!(is_asset(path), asset(path).is_some(), "{path}");
        }
    }

    #[test]
    fn the_page_keeps_its_own_policy() {
        for (name, text) in [("page", PAGE), ("script", SCRIPT), ("style", STYLE)] {
            for banned in
                ["http://", "https://", "innerHTML", "outerHTML", "insertAdjacent", "eval(", "style=\"", "@import"]
            {
                let svg = "http://www.w3.org/2000/svg";
                assert!(!text.replace(svg, "").contains(banned), "{name}: {banned}");
            }
        }
        assert!(!PAGE.contains("<style") && !PAGE.contains("onclick"));
    }

    #[test]
    fn files_by_path() {
        let page = asset("/").unwrap();
        assert_eq!(page.headers()[CONTENT_SECURITY_POLICY], POLICY);
        assert!(asset("/dashboard.js").is_some() && asset("/dashboard.css").is_some());
        assert!(asset("/dashboard").is_none() && asset("/../x").is_none());
    }
}
