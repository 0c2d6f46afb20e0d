//! The Weir filter.
