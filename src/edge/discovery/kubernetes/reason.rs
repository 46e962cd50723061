//! Why Kubernetes tells nothing, in words for an operator: what was said, and who must do what.
//!
//! The client's libraries wrap their errors in each other. Of a call the innermost says the most; what keeps a client
//! from being made says all itself. It is one short line, and what is to be done is never cut off.

use std::env;
use std::error::Error;
use std::io;
use std::iter::from_fn;

use kube::client::AuthError;
use kube::core::Status;

/// As whom this process asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// That of the pod which it runs in.
    ServiceAccount,
    /// By `KUBECONFIG`, or as its user.
    Kubeconfig,
}

/// Of what others say.
const WORDS_CHARS_MAX: usize = 240;

/// Where the files of a pod's service account are.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

impl Identity {
    pub fn of_this_process() -> Identity {
        let is_in_pod = env::var_os("KUBECONFIG").is_none() && env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        if is_in_pod { Identity::ServiceAccount } else { Identity::Kubeconfig }
    }

    /// Why there is no client.
    pub fn words_of_settings(self, error: &(dyn Error + 'static)) -> String {
        let is_of_file = chain(error).any(|error| error.is::<io::Error>());
        let what_to_do = match self {
            Identity::ServiceAccount if is_of_file => {
                format!("set `automountServiceAccountToken: true` in Warmgate's Deployment, so that {ACCOUNT} is there")
            }
            Identity::ServiceAccount => format!("see the files in {ACCOUNT}"),
            Identity::Kubeconfig => "outside of a pod it takes the file that KUBECONFIG names".to_owned(),
        };
        format!("{}; {what_to_do}", line(&error.to_string()))
    }

    /// Why a list or a watch of EndpointSlices in that namespace failed.
    pub fn words_of_call(self, error: &(dyn Error + 'static), namespace: &str) -> String {
        if let Some(status) = chain(error).find_map(status) {
            let told = line(&format!("{} {}", status.code, status.message));
            return with(told, self.after_refusal(status.code, namespace));
        }
        if let Some(error) = chain(error).find_map(|error| error.downcast_ref::<AuthError>()) {
            return with(line(&error.to_string()), Some(format!("see {}", self.token())));
        }
        let innermost = chain(error).last().unwrap_or(error).to_string();
        let what_to_do = self.after_handshake(&innermost);
        with(line(&innermost), what_to_do)
    }

    fn after_refusal(self, code: u16, namespace: &str) -> Option<String> {
        match code {
            401 => Some(format!("the API server does not know who asks: see {}", self.token())),
            403 => Some(format!(
                "whoever administers the namespace {namespace} must allow `get`, `list` and `watch` of \
                 `endpointslices` in the API group `discovery.k8s.io` to that user: kubectl apply -n {namespace} -f \
                 conf/kubernetes/endpoints.yaml"
            )),
            _ => None,
        }
    }

    fn after_handshake(self, words: &str) -> Option<String> {
        let is = |any: &[&str]| any.iter().any(|known| words.contains(known));
        if !is(&["invalid peer certificate"]) {
            return None;
        }
        Some(if is(&["UnknownIssuer", "BadSignature"]) {
            let authority = match self {
                Identity::ServiceAccount => {
                    format!("{ACCOUNT}/ca.crt, which is the ConfigMap kube-root-ca.crt of Warmgate's namespace")
                }
                Identity::Kubeconfig => "`certificate-authority` of the kubeconfig".to_owned(),
            };
            format!(
                "the API server's certificate is not signed by {authority}: whoever runs the cluster must put its CA \
                 there, or take away what answers in its place"
            )
        } else if is(&["certificate expired", "Expired"]) {
            "whoever runs the cluster must renew the API server's certificate".to_owned()
        } else if is(&["not valid yet", "NotValidYet"]) {
            "see the clocks of this machine and of the API server's".to_owned()
        } else {
            format!(
                "whoever runs the cluster must see to the API server's certificate, as it is asked by {}",
                self.host()
            )
        })
    }

    /// Where the token comes from, and what it takes.
    fn token(self) -> String {
        match self {
            Identity::ServiceAccount => format!(
                "that the pod's ServiceAccount is still there, and that {ACCOUNT}/token is of this cluster and renewed"
            ),
            Identity::Kubeconfig => "the user in the kubeconfig".to_owned(),
        }
    }

    fn host(self) -> &'static str {
        match self {
            Identity::ServiceAccount => "KUBERNETES_SERVICE_HOST",
            Identity::Kubeconfig => "the `server` of the kubeconfig",
        }
    }
}

/// It and what it came of, the outermost first.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

fn status<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Status> {
    error.downcast_ref::<Box<Status>>().map(Box::as_ref).or(error.downcast_ref::<Status>())
}

/// What others said, in one line.
fn line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(WORDS_CHARS_MAX).collect();
    line.trim().to_owned()
}

fn with(told: String, what_to_do: Option<String>) -> String {
    match what_to_do {
        Some(what_to_do) => format!("{told}; {what_to_do}"),
        None => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, message: message.to_owned(), ..Status::default() }))
    }

    fn broken(words: &str) -> kube::Error {
        kube::Error::Service(io::Error::other(words.to_owned()).into())
    }

    #[track_caller]
    fn check(identity: Identity, error: &kube::Error, expected: &[&str]) {
        let told = identity.words_of_call(error, "ml");
        let missing: Vec<_> = expected.iter().filter(|words| !told.contains(**words)).collect();
        assert!(missing.is_empty(), "{told:?} does not say {missing:?}");
        assert!(!told.chars().any(char::is_control), "{told:?}");
    }

    #[test]
    fn a_refusal_names_whom_to_ask_and_for_what() {
        let rule = ["403 no\n", "namespace ml", "`watch`", "`endpointslices`", "conf/kubernetes/endpoints.yaml"];
        let rule: Vec<&str> = rule.iter().map(|words| words.trim()).collect();
        check(Identity::ServiceAccount, &refused(403, "no\nway"), &rule);
        check(Identity::ServiceAccount, &refused(403, &"x".repeat(9999)), &["namespace ml must allow"]);
        check(Identity::ServiceAccount, &refused(401, "Unauthorized"), &["401 Unauthorized", "serviceaccount/token"]);
        check(Identity::Kubeconfig, &refused(401, "Unauthorized"), &["see the user in the kubeconfig"]);
        assert_eq!(Identity::ServiceAccount.words_of_call(&refused(500, "etcd"), "ml"), "500 etcd");
    }

    #[test]
    fn a_certificate_that_is_not_believed_says_whose_fault_it_is() {
        let unknown = broken("invalid peer certificate: UnknownIssuer");
        check(Identity::ServiceAccount, &unknown, &["not signed by /var/run/secrets", "kube-root-ca.crt"]);
        check(Identity::Kubeconfig, &unknown, &["not signed by `certificate-authority` of the kubeconfig"]);
        check(Identity::ServiceAccount, &broken("invalid peer certificate: certificate expired: …"), &["must renew"]);
        check(
            Identity::ServiceAccount,
            &broken("invalid peer certificate: certificate not valid for name \"10.0.0.1\""),
            &["not valid for name", "KUBERNETES_SERVICE_HOST"],
        );
        let refused = Identity::ServiceAccount.words_of_call(&broken("Connection refused (os error 111)"), "ml");
        assert_eq!(refused, "Connection refused (os error 111)");
    }
}
