//! A verdict as header fields.
