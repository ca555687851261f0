//! Belady's optimum: evicts what is used again last. Needs the whole trace.

use std::collections::BinaryHeap;

/// Whether each access of a trace hits.
pub(crate) fn hits(keys: &[u32], capacity: usize) -> Vec<bool> {
    let keys_end = keys.iter().max().map_or(0, |&key| key as usize + 1);
    let mut next_of_key = vec![usize::MAX; keys_end];
    let mut next = vec![usize::MAX; keys.len()];
    for (at, &key) in keys.iter().enumerate().rev() {
        next[at] = std::mem::replace(&mut next_of_key[key as usize], at);
    }
    // The next use of each key that is cached. The heap has outdated entries too.
    let mut cached = vec![None; keys_end];
    let (mut heap, mut count) = (BinaryHeap::new(), 0);
    let mut hits = Vec::with_capacity(keys.len());
    for (&key, &next) in keys.iter().zip(&next) {
        let hit = cached[key as usize].is_some();
        if !hit && count == capacity {
            while let Some((at, victim)) = heap.pop() {
                if cached[victim as usize] == Some(at) {
                    cached[victim as usize] = None;
                    count -= 1;
                    break;
                }
            }
        }
        count += usize::from(!hit);
        cached[key as usize] = Some(next);
        heap.push((next, key));
        hits.push(hit);
    }
    hits
}
