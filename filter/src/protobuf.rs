//! A serialised `google.protobuf.Struct`, which is how Envoy hands over a configuration that is written in YAML.
//!
//! Envoy's documentation promises JSON for it; Envoy 1.40 passes the message itself. Only what `struct.proto` defines
//! is read; anything else makes the whole message unreadable.

use weir_protocol::document::Value;

/// How deep values may nest, as in protobuf's own parsers.
const MAX_DEPTH: u8 = 100;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const DELIMITED: u64 = 2;

/// Decodes a `Struct`; `None` if the bytes are not one.
pub fn decode(bytes: &[u8]) -> Option<Value> {
    object(bytes, 0)
}

/// `message Struct { map<string, Value> fields = 1; }`
fn object(mut bytes: &[u8], depth: u8) -> Option<Value> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let mut entry = delimited(&mut bytes, 1)?;
        let (mut name, mut value) = (String::new(), Value::Null);
        while !entry.is_empty() {
            match tag(&mut entry)? {
                (1, DELIMITED) => name = text(take(&mut entry)?)?,
                (2, DELIMITED) => value = self::value(take(&mut entry)?, depth)?,
                _ => return None,
            }
        }
        fields.push((name, value));
    }
    Some(Value::Object(fields))
}

/// `message Value { oneof kind { null = 1; number = 2; string = 3; bool = 4; struct = 5; list = 6; } }`
fn value(mut bytes: &[u8], depth: u8) -> Option<Value> {
    let depth = depth + 1;
    if depth > MAX_DEPTH {
        return None;
    }
    let value = match tag(&mut bytes)? {
        (1, VARINT) => varint(&mut bytes).map(|_| Value::Null)?,
        (2, FIXED64) => {
            let (number, rest) = bytes.split_first_chunk::<8>()?;
            bytes = rest;
            Value::of_double(f64::from_le_bytes(*number))
        }
        (3, DELIMITED) => Value::Text(text(take(&mut bytes)?)?),
        (4, VARINT) => Value::Bool(varint(&mut bytes)? != 0),
        (5, DELIMITED) => object(take(&mut bytes)?, depth)?,
        (6, DELIMITED) => {
            let mut list = take(&mut bytes)?;
            let mut values = Vec::new();
            while !list.is_empty() {
                values.push(self::value(delimited(&mut list, 1)?, depth)?);
            }
            Value::List(values)
        }
        _ => return None,
    };
    bytes.is_empty().then_some(value)
}

fn delimited<'a>(bytes: &mut &'a [u8], field: u64) -> Option<&'a [u8]> {
    if tag(bytes)? == (field, DELIMITED) { take(bytes) } else { None }
}

/// Field number and wire type.
fn tag(bytes: &mut &[u8]) -> Option<(u64, u64)> {
    let tag = varint(bytes)?;
    Some((tag >> 3, tag & 7))
}

fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = usize::try_from(varint(bytes)?).ok()?;
    let (taken, rest) = bytes.split_at_checked(size)?;
    *bytes = rest;
    Some(taken)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// As Envoy 1.40 passes `{a: 1, b: [true, null, "x"], c: {d: 0.5}, e: {}}`.
    const MESSAGE: &[u8] = b"\
        \x0a\x0e\x0a\x01a\x12\x09\x11\x00\x00\x00\x00\x00\x00\xf0\x3f\
        \x0a\x14\x0a\x01b\x12\x0f2\x0d\x0a\x02\x20\x01\x0a\x02\x08\x00\x0a\x03\x1a\x01x\
        \x0a\x17\x0a\x01c\x12\x12*\x10\x0a\x0e\x0a\x01d\x12\x09\x11\x00\x00\x00\x00\x00\x00\xe0\x3f\
        \x0a\x07\x0a\x01e\x12\x02*\x00";

    #[test]
    fn a_struct_is_read() {
        let expected = serde_json::from_slice::<Value>(br#"{"a":1,"b":[true,null,"x"],"c":{"d":0.5},"e":{}}"#).unwrap();
        assert_eq!(decode(MESSAGE), Some(expected));
    }

    #[test]
    fn no_prefix_and_no_flipped_bit_panics() {
        for end in 0..MESSAGE.len() {
            let _ = decode(&MESSAGE[..end]);
        }
        for bit in 0..MESSAGE.len() * 8 {
            let mut message = MESSAGE.to_vec();
            message[bit / 8] ^= 1 << (bit % 8);
            let _ = decode(&message);
        }
        assert_eq!(decode(b"{}"), None);
        assert_eq!(decode(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), None);
    }

    #[test]
    fn nesting_is_bounded() {
        let mut message = vec![0x1a, 0x01, b'x'];
        for _ in 0..20_000 {
            let mut list = vec![0x0a];
            length(&mut list, message.len());
            list.extend(&message);
            let mut value = vec![0x32];
            length(&mut value, list.len());
            value.extend(&list);
            message = value;
            if message.len() > 100_000 {
                break;
            }
        }
        let mut entry = vec![0x12];
        length(&mut entry, message.len());
        entry.extend(&message);
        let mut whole = vec![0x0a];
        length(&mut whole, entry.len());
        whole.extend(&entry);
        assert_eq!(decode(&whole), None);
    }

    fn length(bytes: &mut Vec<u8>, mut length: usize) {
        while length >= 0x80 {
            bytes.push(0x80 | (length & 0x7f) as u8);
            length >>= 7;
        }
        bytes.push(length as u8);
    }
}
