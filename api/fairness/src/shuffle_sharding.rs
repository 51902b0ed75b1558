//! Shuffle sharding: a flow's hash selects a few of a level's queues (upstream's `shufflesharding.Dealer`).

/// The maximum of queues that one flow may use.
const HAND_MAX: usize = 64;

/// Returns `size` different numbers below `deck`. The same hash always gives the same numbers.
///
/// The hash is a number with a mixed base. Each digit selects one of the remaining numbers.
pub(crate) fn deal(hash: u64, deck: u32, size: u32) -> Vec<u32> {
    let size = usize::try_from(size.min(deck)).unwrap_or_default().min(HAND_MAX);
    let (mut rest, mut hand) = (hash, Vec::<u32>::with_capacity(size));
    for left in (1..=deck).rev().take(size) {
        let mut card = u32::try_from(rest % u64::from(left)).unwrap_or_default();
        rest /= u64::from(left);
        // The digit is an index into the remaining numbers: skip the drawn ones, smallest first.
        let mut drawn = hand.clone();
        drawn.sort_unstable();
        for taken in drawn {
            if taken <= card {
                card += 1;
            }
        }
        hand.push(card);
    }
    hand
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_hand_has_different_cards_of_the_deck_and_is_always_the_same() {
        for hash in (0..500_u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)) {
            let hand = deal(hash, 16, 4);
            let different: BTreeSet<u32> = hand.iter().copied().collect();
            assert_eq!((different.len(), different.iter().all(|card| *card < 16)), (4, true), "{hand:?}");
            assert_eq!(hand, deal(hash, 16, 4));
        }
    }

    #[test]
    fn every_card_is_drawn_about_as_often() {
        let mut drawn = [0_u32; 8];
        for hash in 0..8 * 7 * 6 {
            for card in deal(hash, 8, 3) {
                drawn[usize::try_from(card).expect("small")] += 1;
            }
        }
        assert_eq!(drawn, [126; 8]);
    }

    #[test]
    fn a_hand_is_no_larger_than_the_deck() {
        assert_eq!(deal(5, 1, 3), [0]);
        assert!(deal(5, 0, 3).is_empty());
    }
}
