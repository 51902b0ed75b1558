//! The images that the Node reports, as a kubelet does: the largest first, each with its names by digest before its names by tag.

use std::time::Duration;

use k8s_openapi::api::core::v1::ContainerImage;
use node_images::Image;
use tokio::time::Instant;

use crate::error::chain;
use crate::parts::Images;

/// The highest number of names of one image; upstream's `MaxNamesPerImageInNodeStatus`.
const NAMES_MAX: usize = 5;

/// The list as it was read last.
#[derive(Default)]
pub(crate) struct ImageList {
    reported: Vec<ContainerImage>,
    read_at: Option<Instant>,
}

impl ImageList {
    /// The images to report. The store is read if the last reading is older than `refresh`; a list that cannot be read stays
    /// as it was.
    pub(crate) async fn read(&mut self, store: &dyn Images, images_max: Option<usize>, refresh: Duration) -> Vec<ContainerImage> {
        if self.read_at.is_none_or(|at| at.elapsed() >= refresh) {
            match store.list().await {
                Ok(images) => self.reported = reported(images, images_max),
                Err(error) => tracing::warn!(error = chain(&error), "the list of images is not updated"),
            }
            self.read_at = Some(Instant::now());
        }
        self.reported.clone()
    }
}

/// The largest images. Of several that are equally large, the greatest id comes first.
fn reported(mut images: Vec<Image>, images_max: Option<usize>) -> Vec<ContainerImage> {
    images.sort_by(|one, other| (other.size_bytes, &other.id).cmp(&(one.size_bytes, &one.id)));
    images.truncate(images_max.unwrap_or(usize::MAX));
    images.into_iter().map(of_image).collect()
}

fn of_image(image: Image) -> ContainerImage {
    let names = image.digests.into_iter().chain(image.references).take(NAMES_MAX);
    ContainerImage { names: Some(names.collect()), size_bytes: Some(i64::try_from(image.size_bytes).unwrap_or(i64::MAX)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn image(id: &str, size_bytes: u64, references: &[&str], digests: &[&str]) -> Image {
        let config = json!({"entrypoint": [], "cmd": [], "env": [], "working_dir": "", "user": "", "stop_signal": ""});
        let image = json!({"id": id, "references": references, "digests": digests, "kind": "Wasm", "size_bytes": size_bytes,
            "config": config, "layers": [], "blobs": [], "used_at_s": 0});
        serde_json::from_value(image).expect("an image")
    }

    #[test]
    fn images_stand_by_their_size_with_digests_first() {
        let images = vec![
            image("sha256:a", 7, &["docker.io/a:1"], &[]),
            image("sha256:c", 9, &["docker.io/c:1", "docker.io/c:2"], &["docker.io/c@sha256:0"]),
            image("sha256:b", 7, &["docker.io/b:1"], &[]),
        ];
        let report = |images_max| -> Vec<(Vec<String>, i64)> {
            let images = reported(images.clone(), images_max).into_iter();
            images.map(|image| (image.names.unwrap_or_default(), image.size_bytes.unwrap_or_default())).collect()
        };
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let all = [
            (names(&["docker.io/c@sha256:0", "docker.io/c:1", "docker.io/c:2"]), 9),
            (names(&["docker.io/b:1"]), 7),
            (names(&["docker.io/a:1"]), 7),
        ];
        assert_eq!(report(None), all);
        assert_eq!(report(Some(2)), all[..2]);
        assert_eq!(report(Some(0)), []);
    }

    #[test]
    fn an_image_has_five_names_at_most() {
        let tags: Vec<String> = (0..9).map(|tag| format!("docker.io/a:{tag}")).collect();
        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        let names = of_image(image("sha256:a", u64::MAX, &tags, &["docker.io/a@sha256:0"]));
        assert_eq!(
            names.names.unwrap_or_default(),
            ["docker.io/a@sha256:0", "docker.io/a:0", "docker.io/a:1", "docker.io/a:2", "docker.io/a:3"]
        );
        assert_eq!(names.size_bytes, Some(i64::MAX));
    }
}
