//! Problem documents (RFC 9457): every error of the API, and the body of a 429.

use serde::{Deserialize, Serialize};

/// Media type of a problem document.
pub const MEDIA_TYPE: &str = "application/problem+json";
/// Problem type of a refusal (draft-ietf-httpapi-ratelimit-headers, "Problem Types").
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// An RFC 9457 problem document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// A URI that names the kind of problem; `about:blank` when the status says it all.
    #[serde(rename = "type", default = "about_blank")]
    pub kind: String,
    /// Short text, the same for every occurrence of this kind.
    #[serde(default)]
    pub title: String,
    /// The HTTP status; 0 in a document that does not repeat it.
    #[serde(default)]
    pub status: u16,
    /// What went wrong this time: the field, the value, and what is accepted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Names of the policies that refused; on a refusal only.
    #[serde(rename = "violated-policies", default, skip_serializing_if = "Vec::is_empty")]
    pub violated_policies: Vec<String>,
}

fn about_blank() -> String {
    "about:blank".to_owned()
}

impl Problem {
    /// A problem that its status describes (RFC 9457 section 4.2.1): `title` is the status phrase.
    pub fn of_status(status: u16, title: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: about_blank(),
            title: title.to_owned(),
            status,
            detail: detail.into(),
            violated_policies: Vec::new(),
        }
    }
}
