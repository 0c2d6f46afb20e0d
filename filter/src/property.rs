//! What the host knows of a request besides its headers, as text.
//!
//! A host hands over a text as it is, a number as the 8 bytes of its memory (little endian) and a truth value as one
//! byte. It does not say which of them it is, so the configuration does.

/// What a property holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text, or any bytes.
    Text,
    /// A signed whole number.
    Int,
    /// A whole number that is not negative.
    Uint,
    /// A double; all numbers in a JWT and in other metadata are.
    Double,
    /// True or false.
    Bool,
}

impl Kind {
    /// The property as text; `None` if it is not of this kind, or empty.
    pub fn read(self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let eight = || <[u8; 8]>::try_from(bytes.as_slice()).ok();
        match self {
            Self::Text => Some(bytes).filter(|bytes| !bytes.is_empty()),
            Self::Int => eight().map(|bytes| i64::from_le_bytes(bytes).to_string().into_bytes()),
            Self::Uint => eight().map(|bytes| u64::from_le_bytes(bytes).to_string().into_bytes()),
            // Adding 0 makes 0 of -0, which is equal to it.
            Self::Double => eight()
                .map(f64::from_le_bytes)
                .filter(|number| number.is_finite())
                .map(|number| (number + 0.0).to_string().into_bytes()),
            Self::Bool => match bytes.as_slice() {
                [0] => Some(b"false".to_vec()),
                [1] => Some(b"true".to_vec()),
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn read(kind: Kind, bytes: &[u8]) -> Option<String> {
        kind.read(bytes.to_vec()).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn numbers_are_eight_bytes() {
        assert_eq!(read(Kind::Int, &(-7i64).to_le_bytes()).as_deref(), Some("-7"));
        assert_eq!(read(Kind::Uint, &u64::MAX.to_le_bytes()).as_deref(), Some("18446744073709551615"));
        for (number, expected) in [
            (42.0, Some("42")),
            (0.5, Some("0.5")),
            (-0.0, Some("0")),
            (9_007_199_254_740_993.0, Some("9007199254740992")),
            (1e21, Some("1000000000000000000000")),
            (f64::NAN, None),
            (f64::INFINITY, None),
        ] {
            assert_eq!(read(Kind::Double, &f64::to_le_bytes(number)).as_deref(), expected, "{number}");
        }
        for kind in [Kind::Int, Kind::Uint, Kind::Double] {
            for bytes in [b"".as_slice(), b"1", b"1234567", b"123456789"] {
                assert_eq!(read(kind, bytes), None, "{kind:?} {bytes:?}");
            }
        }
    }

    #[test]
    fn a_truth_value_is_one_byte() {
        assert_eq!(read(Kind::Bool, &[1]).as_deref(), Some("true"));
        assert_eq!(read(Kind::Bool, &[0]).as_deref(), Some("false"));
        for bytes in [b"".as_slice(), b"true", &[2], &[0, 0]] {
            assert_eq!(read(Kind::Bool, bytes), None);
        }
    }

    #[test]
    fn text_is_itself_and_an_empty_one_is_missing() {
        assert_eq!(read(Kind::Text, b"org_1").as_deref(), Some("org_1"));
        assert_eq!(read(Kind::Text, b""), None);
    }
}
