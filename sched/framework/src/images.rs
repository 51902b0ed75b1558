//! Which images the nodes have. A node may have a hundred names of images, most of them the same as those of other nodes: a name is stored
//! once, and a node has numbers.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerImage, PodSpec};

/// The number of an image name.
pub type ImageId = u32;

/// The names of all images that nodes have: upstream's `imageStates`.
#[derive(Clone, Debug, Default)]
pub struct ImageStates {
    ids: HashMap<Arc<str>, ImageId>,
    /// By number.
    states: Vec<ImageState>,
    /// The numbers that are free.
    free: Vec<ImageId>,
}

/// An image name that nodes have.
#[derive(Clone, Debug)]
struct ImageState {
    name: Arc<str>,
    /// As the first node said.
    size_bytes: i64,
    /// How many nodes have the image.
    nodes: usize,
}

impl ImageStates {
    /// Whether no node has an image.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Stores the images of a node in place of those `before`. Returns their numbers, in order.
    pub fn replace(&mut self, before: &[ImageId], images: &[ContainerImage]) -> Arc<[ImageId]> {
        let names = images.iter().flat_map(|image| image.names.iter().flatten().map(|name| (name, image.size_bytes.unwrap_or_default())));
        let mut ids: Vec<ImageId> = names.filter_map(|(name, size_bytes)| self.id(name, size_bytes)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.iter().for_each(|id| self.count(*id, 1));
        before.iter().for_each(|id| self.count(*id, -1));
        ids.into()
    }

    /// The number of a name, with the size of the image and the number of nodes that have it.
    pub fn get(&self, name: &str) -> Option<(ImageId, i64, usize)> {
        let id = *self.ids.get(name)?;
        let state = self.states.get(usize::try_from(id).ok()?)?;
        Some((id, state.size_bytes, state.nodes))
    }

    /// The number of a name, which gets one when it has none. `None` when there are too many names.
    fn id(&mut self, name: &str, size_bytes: i64) -> Option<ImageId> {
        if let Some(id) = self.ids.get(name) {
            return Some(*id);
        }
        let state = ImageState { name: name.into(), size_bytes, nodes: 0 };
        let id = match self.free.pop() {
            Some(id) => id,
            None => ImageId::try_from(self.states.len()).ok()?,
        };
        self.ids.insert(Arc::clone(&state.name), id);
        match self.states.get_mut(usize::try_from(id).ok()?) {
            Some(free) => *free = state,
            None => self.states.push(state),
        }
        Some(id)
    }

    /// A node has the image, or does not have it any more.
    fn count(&mut self, id: ImageId, nodes: isize) {
        let Some(state) = usize::try_from(id).ok().and_then(|index| self.states.get_mut(index)) else { return };
        state.nodes = state.nodes.saturating_add_signed(nodes);
        if state.nodes == 0 {
            self.ids.remove(&std::mem::take(&mut state.name));
            self.free.push(id);
        }
    }
}

/// The names of the images of a Pod's containers, init containers among them, as nodes report them.
pub fn image_names(spec: &PodSpec) -> Vec<String> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    containers.filter_map(|container| container.image.as_deref()).map(normalized).collect()
}

/// The name with the tag that it has by default: upstream's `normalizedImageName`.
fn normalized(name: &str) -> String {
    if name.rfind(':') <= name.rfind('/') { format!("{name}:latest") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(names: &[&str], size_bytes: i64) -> ContainerImage {
        ContainerImage { names: Some(names.iter().map(|name| (*name).to_owned()).collect()), size_bytes: Some(size_bytes) }
    }

    #[test]
    fn names_are_counted_until_the_last_node_has_lost_them() {
        let mut images = ImageStates::default();
        let first = images.replace(&[], &[image(&["a:1", "a@sha256:00"], 5), image(&["b:1", "b:1"], 7)]);
        let second = images.replace(&[], &[image(&["b:1"], 9)]);
        assert_eq!((first.to_vec(), second.to_vec()), (vec![0, 1, 2], vec![2]));
        assert_eq!((images.get("a:1"), images.get("b:1"), images.get("b")), (Some((0, 5, 1)), Some((2, 7, 2)), None));
        let first = images.replace(&first, &[image(&["b:1"], 7)]);
        assert_eq!((images.get("a:1"), images.get("b:1")), (None, Some((2, 7, 2))));
        assert_eq!(*images.replace(&second, &[image(&["c:1"], 1), image(&["d:1"], 1)]), [0, 1], "free numbers are used again");
        assert!(images.replace(&first, &[]).is_empty() && images.get("b:1").is_none());
        assert_eq!((images.ids.len(), images.states.len()), (2, 3));
    }

    /// With two names for each of 50 images, a node costs 400 bytes.
    #[test]
    fn a_node_costs_four_bytes_a_name() {
        let mut images = ImageStates::default();
        let named =
            |n: usize| image(&[&format!("registry.example/team/app-{n}:v1"), &format!("registry.example/team/app-{n}@sha256:{n:064}")], 1);
        let all: Vec<_> = (0..50).map(named).collect();
        assert_eq!(size_of_val(&*images.replace(&[], &all)), 400);
    }

    #[test]
    fn an_image_without_a_tag_is_the_latest() {
        for (name, wanted) in [
            ("web", "web:latest"),
            ("web:1", "web:1"),
            ("host:5000/web", "host:5000/web:latest"),
            ("host:5000/web:1", "host:5000/web:1"),
            ("web@sha256:00", "web@sha256:00"),
        ] {
            assert_eq!(normalized(name), wanted);
        }
    }
}
