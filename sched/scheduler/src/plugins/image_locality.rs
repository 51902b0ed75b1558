//! Prefers nodes that have the Pod's images already (`ImageLocality`). An image counts by its size and by the share of the nodes that have
//! it, so that Pods do not all go to the first node that has a large image.

use sched_framework::{CycleState, ImageId, NodeInfo, Plugin, PodInfo, SCORE_MAX, Scope, ScorePlugin, Snapshot};

/// The name of the plugin.
pub(crate) const IMAGE_LOCALITY: &str = "ImageLocality";

const MIB: i64 = 1 << 20;
/// Upstream's `minThreshold`: smaller images do not count.
const BYTES_MIN: i64 = 23 * MIB;
/// Upstream's `maxContainerThreshold`: what a container's image counts at most.
const BYTES_MAX: i64 = 1_000 * MIB;

pub(crate) struct ImageLocality;

/// What the Pod's images count on a node that has them.
#[derive(Default)]
struct Counted {
    /// One for each container whose image a node has.
    images: Vec<(ImageId, i64)>,
    /// What all images count at most.
    bytes_max: i64,
}

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        IMAGE_LOCALITY
    }

    /// Scores depend on how many nodes have an image.
    fn scope(&self) -> Scope {
        Scope::Cluster
    }
}

impl ScorePlugin for ImageLocality {
    fn read_snapshot(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) {
        match counted(pod, snapshot) {
            Some(counted) => state.write(self.name(), counted),
            None => {
                // Of an earlier cycle.
                if let Some(before) = state.read_mut::<Counted>(self.name()) {
                    *before = Counted::default();
                }
            }
        }
    }

    fn pre_score(&self, state: &mut CycleState, _pod: &PodInfo, _feasible: &[&NodeInfo]) -> bool {
        state.read::<Counted>(self.name()).is_some_and(|counted| !counted.images.is_empty())
    }

    fn score(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let Counted { images, bytes_max } = state.read(self.name())?;
        let present = images.iter().filter(|(id, _)| node.images.binary_search(id).is_ok());
        let bytes = present.map(|(_, bytes)| *bytes).fold(0, i64::saturating_add);
        Some(SCORE_MAX * (bytes.clamp(BYTES_MIN, *bytes_max) - BYTES_MIN) / (bytes_max - BYTES_MIN))
    }
}

/// What the Pod's images count; `None` when they count the same on all nodes: no node has them, all nodes have them, or they are small.
fn counted(pod: &PodInfo, snapshot: &Snapshot) -> Option<Counted> {
    if snapshot.images.is_empty() {
        return None;
    }
    let (total, mut differs) = (snapshot.nodes.len(), false);
    let mut images = Vec::new();
    for (id, bytes, nodes) in pod.images.iter().filter_map(|name| snapshot.images.get(name)) {
        differs |= nodes < total;
        images.push((id, scaled(bytes, nodes, total)));
    }
    let most = images.iter().map(|(_, bytes)| *bytes).fold(0, i64::saturating_add);
    let containers = i64::try_from(pod.images.len()).unwrap_or(i64::MAX);
    (differs && most > BYTES_MIN).then(|| Counted { images, bytes_max: BYTES_MAX.saturating_mul(containers) })
}

/// Upstream's `scaledImageScore`.
fn scaled(bytes: i64, nodes: usize, total: usize) -> i64 {
    let scaled = i128::from(bytes) * i128::try_from(nodes.min(total)).unwrap_or_default() / i128::try_from(total.max(1)).unwrap_or(1);
    i64::try_from(scaled).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ContainerImage;
    use serde_json::json;

    use super::*;
    use crate::plugins::fixtures::{node, pod, scores, snapshot};

    /// The images of a node, each with its size in MiB.
    type Images = &'static [(&'static str, i64)];

    /// A cluster whose nodes have these images.
    fn cluster(nodes: &[Images]) -> Snapshot {
        let names = (0..nodes.len()).map(|n| node(&format!("n{n}"), json!({})));
        let mut all = snapshot(names.collect());
        for (info, images) in all.nodes.iter_mut().zip(nodes) {
            let image = |(name, mib): &(&str, i64)| ContainerImage { names: Some(vec![(*name).to_owned()]), size_bytes: Some(mib * MIB) };
            let images: Vec<_> = images.iter().map(image).collect();
            std::sync::Arc::make_mut(info).images = all.images.replace(&[], &images);
        }
        all
    }

    fn running(images: &[&str]) -> PodInfo {
        let containers: Vec<_> = images.iter().enumerate().map(|(n, image)| json!({"name": format!("c{n}"), "image": image})).collect();
        pod("p", json!({"containers": containers}))
    }

    #[test]
    fn nodes_score_by_the_size_of_their_images_and_by_how_many_nodes_have_them() {
        const NONE: Images = &[];
        const LARGE: Images = &[("large:latest", 500)];
        // A name, the images of the containers, those of the nodes, and their scores.
        type Case = (&'static str, &'static [&'static str], &'static [Images], Option<&'static [i64]>);
        let cases: [Case; 11] = [
            // 500 MiB on one of two nodes count 250 of 23 to 1000.
            ("one node", &["large"], &[LARGE, NONE], Some(&[23, 0])),
            ("two of four nodes", &["large"], &[LARGE, NONE, LARGE, NONE], Some(&[23, 0, 23, 0])),
            ("three of four nodes", &["large"], &[LARGE, LARGE, LARGE, NONE], Some(&[36, 36, 36, 0])),
            ("all nodes", &["large"], &[LARGE, LARGE], None),
            ("another tag", &["large:v2"], &[LARGE, NONE], None),
            ("a small image", &["small:1"], &[&[("small:1", 46)], NONE], None),
            ("a larger one", &["small:1"], &[&[("small:1", 66)], NONE], Some(&[1, 0])),
            ("a huge one", &["huge:1"], &[&[("huge:1", 9_000)], NONE], Some(&[100, 0])),
            // 500 and 500 of 23 to 2000.
            ("both images", &["a:1", "b:1"], &[&[("a:1", 1_000), ("b:1", 1_000)], NONE], Some(&[49, 0])),
            ("one of both", &["a:1", "none:1"], &[&[("a:1", 1_000)], NONE], Some(&[24, 0])),
            ("no images", &["large"], &[NONE, NONE], None),
        ];
        for (what, images, nodes, wanted) in cases {
            assert_eq!(scores(&ImageLocality, &running(images), &cluster(nodes)).as_deref(), wanted, "{what}");
        }
    }

    #[test]
    fn init_containers_count_and_what_an_earlier_cycle_left_does_not() {
        let nodes: [Images; 2] = [&[("init:1", 1_000)], &[]];
        let with_init = pod("p", json!({"initContainers": [{"name": "i", "image": "init:1"}]}));
        assert_eq!(scores(&ImageLocality, &with_init, &cluster(&nodes)), Some(vec![48, 0]));
        let mut state = CycleState::default();
        ImageLocality.read_snapshot(&mut state, &with_init, &cluster(&nodes));
        assert!(ImageLocality.pre_score(&mut state, &with_init, &[]));
        ImageLocality.read_snapshot(&mut state, &with_init, &cluster(&[&[], &[]]));
        assert!(!ImageLocality.pre_score(&mut state, &with_init, &[]));
    }
}
