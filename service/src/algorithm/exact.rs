//! Products of a limit and a window, divided without rounding: they reach 2^98.

/// floor(a * b / d); `u64::MAX` if it is larger, or if d is 0.
pub fn mul_div_floor(a: u64, b: u64, d: u64) -> u64 {
    let quotient = (u128::from(a) * u128::from(b)).checked_div(u128::from(d));
    quotient.and_then(|quotient| u64::try_from(quotient).ok()).unwrap_or(u64::MAX)
}

/// ceil(a * b / d); `u64::MAX` if it is larger, or if d is 0.
pub fn mul_div_ceil(a: u64, b: u64, d: u64) -> u64 {
    div_ceil(u128::from(a) * u128::from(b), d)
}

/// ceil(a / d); `u64::MAX` if it is larger, or if d is 0.
pub fn div_ceil(a: u128, d: u64) -> u64 {
    if d == 0 {
        return u64::MAX;
    }
    u64::try_from(a.div_ceil(u128::from(d))).unwrap_or(u64::MAX)
}
