//! Waiting for a fact instead of for a time, and keeping away from the edges of windows.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Polls until `probe` returns something; panics with `what` and the deadline if it never does.
///
/// ```no_run
/// # async fn example(stack: &harness::Stack) {
/// use std::time::Duration;
/// harness::eventually("the limit applies again", Duration::from_secs(5), async || {
///     (stack.get("/", &[]).await.status == 429).then_some(())
/// })
/// .await;
/// # }
/// ```
pub async fn eventually<T>(what: &str, deadline: Duration, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Time left until the next edge of an epoch-aligned window of this length, by the system's clock, which is the clock
/// of a Redis on this machine too.
pub fn until_edge(window: Duration) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_nanos();
    let left = window.as_nanos() - now % window.as_nanos();
    Duration::from_nanos(u64::try_from(left).expect("a window below 500 years"))
}

/// A window of about an hour, as a policy file writes it, whose next edge is more than `margin` away: the counts of a
/// test that is done within `margin` belong to one window. Panics if `margin` is above 20 minutes.
pub fn long_window(margin: Duration) -> &'static str {
    assert!(margin <= Duration::from_secs(20 * 60), "a test that takes {margin:?}?");
    // When one of these is near its edge, another is not.
    [("1h", 60), ("67m", 67), ("71m", 71), ("73m", 73), ("79m", 79), ("83m", 83), ("89m", 89)]
        .into_iter()
        .find(|(_, minutes)| until_edge(Duration::from_secs(minutes * 60)) > margin)
        .map(|(name, _)| name)
        .expect("not every window is near its edge")
}
