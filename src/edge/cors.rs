//! Which web pages may use Warmgate: it answers browsers itself, and no node sees or says anything of it.
//!
//! A page whose origin is not in the list gets no leave, so that its browser keeps the answer from it. A list
//! that is empty gives nobody leave and adds nothing.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderName, HeaderValue, Method};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::{HttpModule, HttpModuleBuilder, Module};
use pingora_core::Result;

use super::ingress::Ingress;
use crate::config::{Cors, Plan};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// A browser asks whether a page may send a request, before it sends that.
pub fn is_preflight(request: &RequestHeader) -> bool {
    let has = |name| request.headers.contains_key(name);
    request.method == Method::OPTIONS && has(ORIGIN) && has(ACCESS_CONTROL_REQUEST_METHOD)
}

/// What the page may be told, if it may.
pub fn leave(cors: &Cors, request: &RequestHeader) -> Option<HeaderValue> {
    let origin = request.headers.get(ORIGIN)?;
    cors.allows(origin.to_str().ok()?).then(|| origin.clone())
}

/// Whether a page that has no leave made a browser send this. Some requests browsers send without asking first, and
/// a name that leads here may be anybody's; so what changes or costs something is for pages that are in the list.
/// Browsers say where a request comes from, and pages cannot make them lie; programs say nothing.
pub fn is_of_foreign_page(cors: &Cors, request: &RequestHeader) -> bool {
    if matches!(request.method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return false;
    }
    let site = request.headers.get(FETCH_SITE).map(|site| site.as_bytes());
    match request.headers.get(ORIGIN) {
        Some(_) => leave(cors, request).is_none(),
        None => site.is_some_and(|site| site != b"none"),
    }
}

/// Adds the leave to every answer, whoever wrote it.
pub struct Leaves(pub Arc<Ingress>);

impl HttpModuleBuilder for Leaves {
    fn init(&self) -> Module {
        Box::new(Leave { plan: self.0.plan(), given: None })
    }
}

struct Leave {
    /// The settings that the request began with.
    plan: Arc<Plan>,
    given: Option<HeaderValue>,
}

#[async_trait]
impl HttpModule for Leave {
    async fn request_header_filter(&mut self, request: &mut RequestHeader) -> Result<()> {
        self.given = leave(&self.plan.cors, request);
        Ok(())
    }

    async fn response_header_filter(&mut self, response: &mut ResponseHeader, _end: bool) -> Result<()> {
        if response.status.is_informational() || self.plan.cors.origins.is_empty() {
            return Ok(());
        }
        response.append_header(VARY, "Origin")?;
        if let Some(origin) = &self.given {
            response.insert_header(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone())?;
            response.insert_header(ACCESS_CONTROL_EXPOSE_HEADERS, "*")?;
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
