//! Fetches the keys of tokens from their URL: at the start, every few minutes, and when a token names a key
//! that is not here. A look that fails changes nothing but when the next one is due.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep_until;

use crate::config::{JwksUrl, SigningKeys};
use crate::edge::fetch::Fetcher;
use crate::edge::ingress::Ingress;
use crate::edge::target::Target;

/// From resolving the name to the last byte.
const FETCH_MAX: Duration = Duration::from_secs(5);

/// Looks whenever that is due, for ever.
pub async fn keep(ingress: Arc<Ingress>) {
    loop {
        tokio::select! {
            () = sleep_until(ingress.tokens.due()) => look(&ingress).await,
            () = ingress.tokens.sooner.notified() => {}
        }
    }
}

/// Looks now, if there is a URL to look at.
pub async fn look(ingress: &Ingress) {
    let Some(url) = ingress.tokens.url() else { return ingress.tokens.looked(None, None) };
    let fetched = fetch(&ingress.fetcher, &url).await;
    ingress.metrics.tenants.jwks_fetched(fetched.is_ok());
    if let Err(why) = &fetched {
        ingress.tokens.failed(why);
        log::warn!("the keys of tokens at {url}: {why}; those from before stay in force");
    }
    ingress.tokens.looked(Some(&url), fetched.ok());
}

async fn fetch(fetcher: &Fetcher, url: &JwksUrl) -> Result<SigningKeys, String> {
    let answer = fetcher.get(&Target::of(&url.server).with_tls(url.ca.as_deref()), &url.path, FETCH_MAX).await;
    let answer = answer.map_err(|error| error.to_string())?;
    if !answer.status.is_success() {
        return Err(format!("it answers {}", answer.status));
    }
    SigningKeys::of(&answer.body).map_err(|why| format!("what it answers {why}"))
}
