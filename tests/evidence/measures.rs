//! What is counted over a history of requests and verdicts. Brute force and independent of every implementation: a
//! trailing window is the half open span `(t - window, t]`.

use std::collections::{HashMap, VecDeque};

use crate::traffic::Request;

/// The most requests of one client that any trailing window holds.
pub fn largest_in_window(admitted: impl IntoIterator<Item = Request>, window_us: u64) -> usize {
    let mut recent: HashMap<u32, VecDeque<u64>> = HashMap::new();
    let mut largest = 0;
    for request in admitted {
        let recent = recent.entry(request.client).or_default();
        leave(recent, request.at_us, window_us);
        recent.push_back(request.at_us);
        largest = largest.max(recent.len());
    }
    largest
}

/// The requests that were admitted.
pub fn admitted(requests: &[Request], verdicts: &[bool]) -> Vec<Request> {
    requests.iter().zip(verdicts).filter(|(_, verdict)| **verdict).map(|(request, _)| *request).collect()
}

/// Verdicts that are wrong, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wrong {
    /// Admitted, and should not have been.
    pub admitted: usize,
    /// Refused, and should not have been.
    pub refused: usize,
}

impl Wrong {
    pub fn total(self) -> usize {
        self.admitted + self.refused
    }
}

/// Verdicts that differ from those of the exact log for the same requests; each side lives with its own history.
pub fn against_log(verdicts: &[bool], log: &[bool]) -> Wrong {
    let mut wrong = Wrong::default();
    for (verdict, exact) in verdicts.iter().zip(log) {
        wrong.admitted += usize::from(*verdict && !exact);
        wrong.refused += usize::from(!verdict && *exact);
    }
    wrong
}

/// Verdicts that break the rule "admit if the trailing window holds less than the limit", by what the limiter itself
/// had admitted until then.
pub fn against_rule(requests: &[Request], verdicts: &[bool], limit: u64, window_us: u64) -> Wrong {
    let mut recent: HashMap<u32, VecDeque<u64>> = HashMap::new();
    let mut wrong = Wrong::default();
    for (request, verdict) in requests.iter().zip(verdicts) {
        let recent = recent.entry(request.client).or_default();
        leave(recent, request.at_us, window_us);
        let room = (recent.len() as u64) < limit;
        wrong.admitted += usize::from(*verdict && !room);
        wrong.refused += usize::from(!verdict && room);
        if *verdict {
            recent.push_back(request.at_us);
        }
    }
    wrong
}

fn leave(recent: &mut VecDeque<u64>, now_us: u64, window_us: u64) {
    while recent.front().is_some_and(|at| at + window_us <= now_us) {
        recent.pop_front();
    }
}

/// The value below which this share of the values lies; sorts them.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share).round() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(times: &[u64]) -> Vec<Request> {
        times.iter().map(|at_us| Request { at_us: *at_us, client: 0 }).collect()
    }

    #[test]
    fn a_window_is_half_open() {
        assert_eq!(largest_in_window(at(&[0, 10]), 10), 1);
        assert_eq!(largest_in_window(at(&[0, 9]), 10), 2);
        assert_eq!(largest_in_window(at(&[0, 5, 9, 10, 11]), 10), 4);
        assert_eq!(largest_in_window(at(&[]), 10), 0);
    }

    #[test]
    fn clients_are_counted_apart() {
        let requests = [0, 1, 1].map(|client| Request { at_us: 5, client });
        assert_eq!(largest_in_window(requests, 10), 2);
    }

    #[test]
    fn wrong_verdicts_are_told_apart() {
        let requests = at(&[0, 1, 2, 20]);
        let rule = against_rule(&requests, &[true, true, false, false], 1, 10);
        assert_eq!(rule, Wrong { admitted: 1, refused: 1 });
        let log = against_log(&[true, true, false, false], &[true, false, false, true]);
        assert_eq!(log, Wrong { admitted: 1, refused: 1 });
        // A limiter that keeps the rule is never wrong.
        assert_eq!(against_rule(&requests, &[true, false, false, true], 1, 10).total(), 0);
    }

    #[test]
    fn quantiles_are_values() {
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 1.0), 3.0);
    }
}
