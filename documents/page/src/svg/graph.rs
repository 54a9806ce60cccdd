//! What elements come to with all that they refer to: sums and depths over a graph whose steps are
//! counted, without recursion.

/// How often what is passed on to a mark, and to others by it, is looked for.
pub(super) const PASSES_MAX: usize = 16;

/// What each one comes to, with all that follows from it each time; nothing, if that leads in a
/// circle.
pub(super) fn costs(graph: &[Vec<(usize, u64)>], own: impl Fn(usize) -> u64) -> Option<Vec<u64>> {
    totals(graph, own, |_, all, of_one, times| all.saturating_add(of_one.saturating_mul(times)))
}

/// How many are below each other, from each one on, with `below` it what is no part of the graph.
pub(super) fn heights(
    graph: &[Vec<(usize, u64)>],
    below: impl Fn(usize) -> u64,
) -> Option<Vec<u64>> {
    totals(graph, |number| 1 + below(number), |_, all, of_one, _| all.max(of_one + 1))
}

/// What each one comes to: what it is itself, with each that follows from it, what that one comes
/// to and how often it does; nothing, if that leads in a circle.
pub(super) fn totals(
    graph: &[Vec<(usize, u64)>],
    own: impl Fn(usize) -> u64,
    with: impl Fn(usize, u64, u64, u64) -> u64,
) -> Option<Vec<u64>> {
    const OPEN: u64 = u64::MAX;
    let mut known: Vec<Option<u64>> = vec![None; graph.len()];
    for start in 0..graph.len() {
        if known[start].is_some() {
            continue;
        }
        let mut open = vec![(start, 0)];
        known[start] = Some(OPEN);
        while let Some((number, next)) = open.pop() {
            let Some((target, _)) = graph[number].get(next) else {
                let all = graph[number].iter().fold(own(number), |all, (target, times)| {
                    with(number, all, known[*target].unwrap_or(0), *times)
                });
                known[number] = Some(all.min(OPEN - 1));
                continue;
            };
            open.push((number, next + 1));
            match known[*target] {
                None => {
                    known[*target] = Some(OPEN);
                    open.push((*target, 0));
                }
                Some(OPEN) => return None,
                Some(_) => {}
            }
        }
    }
    known.into_iter().collect()
}
