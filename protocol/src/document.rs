//! A configuration as a tree, read field by field so that every mistake is reported with its path.
//!
//! Filter and service read theirs the same way. A derive stops at the first mistake; an operator wants all of them.
//! Unknown fields and repeated ones are mistakes: what is written and not read would limit less than was asked.

use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`, or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number, not negative.
    Whole(u64),
    /// Any other number, as text.
    Number(String),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// An object, in the order written; a repeated name is there twice.
    Object(Vec<(String, Value)>),
}

/// All mistakes of one configuration, in the order found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(Vec<String>);

/// Reads one object; what was not asked for when it is finished is a mistake.
pub struct Fields<'a> {
    path: String,
    fields: &'a [(String, Value)],
    known: Vec<&'static str>,
}

// === impl Value ===

impl Value {
    /// The value of a double where no other numbers exist: a whole one is [`Value::Whole`].
    pub fn of_double(value: f64) -> Self {
        const EXACT: f64 = (1u64 << 53) as f64;
        let whole = value.fract() == 0.0 && (0.0..EXACT).contains(&value);
        if whole { Self::Whole(value as u64) } else { Self::Number(format!("{value:?}")) }
    }

    fn describe(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Whole(value) => value.to_string(),
            Self::Number(value) => value.clone(),
            Self::Text(value) => format!("{value:?}"),
            Self::List(_) => "a list".to_owned(),
            Self::Object(_) => "an object".to_owned(),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Whole(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(u64::try_from(value).map_or_else(|_| Value::Number(value.to_string()), Value::Whole))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(u64::try_from(value).map_or_else(|_| Value::Number(value.to_string()), Value::Whole))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(u64::try_from(value).map_or_else(|_| Value::Number(value.to_string()), Value::Whole))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(format!("{value:?}")))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Value::Object(fields))
    }
}

// === impl Mistakes ===

impl Mistakes {
    /// Adds a mistake at a path: what was found, and what is accepted.
    pub fn add(&mut self, path: &str, message: impl fmt::Display) {
        self.0.push(if path.is_empty() { message.to_string() } else { format!("{path}: {message}") });
    }

    /// Adds a mistake about a value of the wrong kind or range.
    pub fn expected(&mut self, path: &str, accepted: impl fmt::Display, found: &Value) {
        self.add(path, format_args!("expected {accepted}, found {}", found.describe()));
    }

    /// True if nothing was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The mistakes; empty if there are none.
    pub fn into_messages(self) -> Vec<String> {
        self.0
    }

    /// A whole number in a range.
    pub fn whole(&mut self, path: &str, value: &Value, range: RangeInclusive<u64>) -> Option<u64> {
        match value {
            Value::Whole(number) if range.contains(number) => Some(*number),
            other => {
                self.expected(path, format_args!("a whole number from {} to {}", range.start(), range.end()), other);
                None
            }
        }
    }

    /// A text that is not empty.
    pub fn text<'a>(&mut self, path: &str, value: &'a Value, accepted: &str) -> Option<&'a str> {
        match value {
            Value::Text(text) if !text.is_empty() => return Some(text),
            Value::Whole(_) | Value::Number(_) | Value::Bool(_) => {
                self.expected(path, format_args!("{accepted} (put it in quotes)"), value);
            }
            other => self.expected(path, accepted, other),
        }
        None
    }

    /// True or false.
    pub fn bool(&mut self, path: &str, value: &Value) -> Option<bool> {
        match value {
            Value::Bool(value) => Some(*value),
            other => {
                self.expected(path, "true or false", other);
                None
            }
        }
    }

    /// A list; `what` names its members.
    pub fn list<'a>(&mut self, path: &str, value: &'a Value, what: &str) -> Option<&'a [Value]> {
        match value {
            Value::List(values) => Some(values),
            other => {
                self.expected(path, format_args!("a list of {what}"), other);
                None
            }
        }
    }

    /// An object; nothing counts as one without fields, since that is how YAML writes an empty one.
    pub fn object<'a>(&mut self, path: &str, value: &'a Value) -> Option<Fields<'a>> {
        let fields: &[_] = match value {
            Value::Object(fields) => fields,
            Value::Null => &[],
            other => {
                self.expected(path, "an object", other);
                return None;
            }
        };
        Some(Fields { path: path.to_owned(), fields, known: Vec::new() })
    }

    /// One word of a closed set.
    pub fn choice<T: Copy>(&mut self, path: &str, value: &Value, choices: &[(&str, T)]) -> Option<T> {
        if let Value::Text(text) = value
            && let Some((_, choice)) = choices.iter().find(|(word, _)| word == text)
        {
            return Some(*choice);
        }
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        self.expected(path, format_args!("one of {}", words.join(", ")), value);
        None
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for Mistakes {}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// The path of this object.
    pub fn here(&self) -> &str {
        &self.path
    }

    /// The path of a field of this object.
    pub fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A field that may be absent.
    pub fn optional(&mut self, name: &'static str) -> Option<(String, &'a Value)> {
        self.known.push(name);
        let (_, value) = self.fields.iter().find(|(known, _)| known == name)?;
        Some((self.path(name), value))
    }

    /// A field that must be there.
    pub fn required(
        &mut self,
        name: &'static str,
        accepted: impl fmt::Display,
        mistakes: &mut Mistakes,
    ) -> Option<(String, &'a Value)> {
        let field = self.optional(name);
        if field.is_none() {
            mistakes.add(&self.path(name), format_args!("is missing; expected {accepted}"));
        }
        field
    }

    /// Reports what was not asked for, and what is written twice.
    pub fn finish(self, mistakes: &mut Mistakes) {
        for (index, (name, _)) in self.fields.iter().enumerate() {
            if !self.known.contains(&name.as_str()) {
                let accepted = if self.known.is_empty() { "none".to_owned() } else { self.known.join(", ") };
                mistakes.add(&self.path(name), format_args!("unknown field; accepted: {accepted}"));
            } else if self.fields.iter().take(index).any(|(earlier, _)| earlier == name) {
                mistakes.add(&self.path(name), "is written twice");
            }
        }
    }

    /// Reports unless exactly one of the fields asked for is there, and nothing else.
    pub fn one_of(self, mistakes: &mut Mistakes) {
        self.one_of_beside(&[], mistakes);
    }

    /// As [`Fields::one_of`], the fields in `beside` not counting.
    pub fn one_of_beside(self, beside: &[&str], mistakes: &mut Mistakes) {
        let choices: Vec<&str> = self.known.iter().copied().filter(|name| !beside.contains(name)).collect();
        let present = self.fields.iter().filter(|(name, _)| choices.contains(&name.as_str())).count();
        let has_unknown = self.fields.iter().any(|(name, _)| !self.known.contains(&name.as_str()));
        if present != 1 && !has_unknown {
            let accepted = choices.join(", ");
            mistakes.add(&self.path, format_args!("expected exactly one of {accepted}, found {present} of them"));
        }
        self.finish(mistakes);
    }
}
