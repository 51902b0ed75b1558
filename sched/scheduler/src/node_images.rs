//! A watch of the images that Nodes report, for `ImageLocality`. The informer of Nodes, which other parts of the process share, drops
//! them: a name may have a hundred bytes, and a Node a hundred names. This watch reads nothing else of a Node and stores nothing; the
//! cache of the scheduler has each name once.

use std::borrow::Cow;
use std::collections::HashSet;

use api_client::error::chain;
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::core::v1::ContainerImage;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::Deserialize;

/// The part of a Node that is read.
#[derive(Clone, Debug, Deserialize)]
struct NodeStatusImages {
    metadata: ObjectMeta,
    status: Option<Status>,
}

#[derive(Clone, Debug, Deserialize)]
struct Status {
    images: Option<Vec<ContainerImage>>,
}

impl Resource for NodeStatusImages {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "Node".into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        "".into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        "nodes".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What the watch says.
pub(crate) enum ImageChange {
    /// The node of that name has these images.
    Of(String, Vec<ContainerImage>),
    /// There are no other nodes than these.
    Only(HashSet<String>),
}

/// The watch. It goes on after errors.
pub(crate) struct ImageWatch {
    events: BoxStream<'static, watcher::Result<Event<NodeStatusImages>>>,
    /// The nodes of the list that is being read.
    listed: HashSet<String>,
}

impl ImageWatch {
    /// A watch that begins with the first call of [`ImageWatch::next`].
    pub fn new(client: Client) -> Self {
        let events = watcher(Api::all(client), watcher::Config::default()).default_backoff();
        Self { events: events.boxed(), listed: HashSet::new() }
    }

    /// The next change. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<ImageChange> {
        loop {
            match self.events.next().await? {
                Ok(Event::Init) => self.listed.clear(),
                Ok(Event::InitApply(node)) => {
                    let (name, images) = split(node);
                    self.listed.insert(name.clone());
                    return Some(ImageChange::Of(name, images));
                }
                Ok(Event::InitDone) => return Some(ImageChange::Only(std::mem::take(&mut self.listed))),
                Ok(Event::Apply(node)) => {
                    let (name, images) = split(node);
                    return Some(ImageChange::Of(name, images));
                }
                Ok(Event::Delete(node)) => return Some(ImageChange::Of(split(node).0, Vec::new())),
                Err(error) => tracing::debug!(error = chain(&error), "watch of images interrupted"),
            }
        }
    }
}

fn split(node: NodeStatusImages) -> (String, Vec<ContainerImage>) {
    (node.metadata.name.unwrap_or_default(), node.status.and_then(|status| status.images).unwrap_or_default())
}

/// The next change of a watch, if there is one.
pub(crate) async fn next(watch: &mut Option<ImageWatch>) -> Option<ImageChange> {
    match watch {
        Some(watch) => watch.next().await,
        None => None,
    }
}
