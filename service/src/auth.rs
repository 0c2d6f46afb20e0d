//! Bearer tokens of the check API (RFC 6750), from the environment or a file. They are never printed.

use std::{fmt, fs};

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use thiserror::Error;

/// The environment variable that holds the tokens.
pub const VARIABLE: &str = "WEIR_TOKEN";
/// The environment variable that names a file with the tokens.
pub const FILE_VARIABLE: &str = "WEIR_TOKEN_FILE";
/// Valid at once: the old and the new one, while they are rotated.
const MAX_TOKENS: usize = 2;

/// The tokens that are valid.
///
/// Only their digests are kept: they have one length, so that a comparison takes the same time whatever was sent.
pub struct Tokens(Vec<[u8; 32]>);

/// There are no usable tokens. Shows no part of them.
#[derive(Debug, Error)]
pub enum TokenError {
    /// Neither variable is set.
    #[error(
        "auth: token needs {VARIABLE} or {FILE_VARIABLE} in the environment: one token, or two while they are rotated"
    )]
    Missing,
    /// The file cannot be read.
    #[error("{FILE_VARIABLE}: cannot read {path}: {source}")]
    Unreadable {
        /// What the variable says.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Not one or two tokens.
    #[error("{variable}: expected 1 to {MAX_TOKENS} tokens with a comma between them, found {found}")]
    Count {
        /// Where they stand.
        variable: &'static str,
        /// How many.
        found: usize,
    },
    /// A token that cannot be sent.
    #[error("{variable}: expected tokens of A-Z, a-z, 0-9 and -._~+/=, found another character (not shown)")]
    Character {
        /// Where it stands.
        variable: &'static str,
    },
}

// === impl Tokens ===

impl Tokens {
    /// Reads the tokens; `lookup` reads a variable of the environment.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, TokenError> {
        if let Some(text) = lookup(VARIABLE) {
            return Self::parse(&text, VARIABLE);
        }
        let path = lookup(FILE_VARIABLE).ok_or(TokenError::Missing)?;
        let text = fs::read_to_string(&path).map_err(|source| TokenError::Unreadable { path, source })?;
        Self::parse(&text, FILE_VARIABLE)
    }

    fn parse(text: &str, variable: &'static str) -> Result<Self, TokenError> {
        let tokens: Vec<&str> =
            text.split([',', '\n', '\r']).map(str::trim).filter(|token| !token.is_empty()).collect();
        if tokens.is_empty() || tokens.len() > MAX_TOKENS {
            return Err(TokenError::Count { variable, found: tokens.len() });
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if !tokens.iter().all(|token| token.bytes().all(plain)) {
            return Err(TokenError::Character { variable });
        }
        Ok(Self(tokens.into_iter().map(digest).collect()))
    }

    /// Whether the value of an `Authorization` field holds a valid token.
    pub fn admit(&self, authorization: Option<&[u8]>) -> bool {
        let Some((scheme, token)) = authorization.and_then(|value| value.split_at_checked(b"Bearer ".len())) else {
            return false;
        };
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return false;
        }
        let sent = digest(token);
        // Every token is compared, so that time does not tell which one it was.
        self.0.iter().fold(Choice::from(0), |admitted, token| admitted | token.ct_eq(&sent)).into()
    }
}

fn digest(token: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::digest(token.as_ref()).into()
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Tokens, TokenError> {
        Tokens::from_env(|name| (name == VARIABLE).then(|| text.to_owned()))
    }

    #[test]
    fn two_tokens_are_valid_at_once() {
        let tokens = of("old, new").unwrap();
        for good in ["Bearer old", "Bearer new", "bearer new"] {
            assert!(tokens.admit(Some(good.as_bytes())), "{good}");
        }
        for bad in ["Bearer other", "Bearer ", "Bearer old,new", "Bearer old ", "Basic old", "old", ""] {
            assert!(!tokens.admit(Some(bad.as_bytes())), "{bad}");
        }
        assert!(!tokens.admit(None));
    }

    #[test]
    fn unusable_tokens_are_refused_and_never_shown() {
        for text in ["", " , ", "a,b,c", "pass word", "p\u{e4}ss"] {
            let error = of(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("word"), "{error}");
        }
        assert!(matches!(Tokens::from_env(|_| None), Err(TokenError::Missing)));
        let missing = Tokens::from_env(|name| (name == FILE_VARIABLE).then(|| "/nonexistent/tokens".to_owned()));
        assert!(matches!(missing, Err(TokenError::Unreadable { .. })));
    }
}
