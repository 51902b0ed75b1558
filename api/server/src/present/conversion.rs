//! Converts the events of a watch to the watch's version.

use std::sync::Arc;

use api_cache::{Before, Beginning, Delivery, Event, Filter};
use api_wire::status::ApiResult;

use crate::registry::Served;

/// Converts objects and events to the version of a watch.
#[derive(Clone)]
pub(crate) struct WatchConversion {
    served: Arc<Served>,
    /// The filter for converted objects, if the conversion may change the result of the filter.
    filter: Option<Arc<Filter>>,
}

impl WatchConversion {
    /// The conversion for a watch of a kind with several versions, and the filter for the stored objects.
    pub(crate) fn of(served: &Arc<Served>, filter: Filter) -> (Option<Self>, Filter) {
        let Some(converter) = served.converter() else { return (None, filter) };
        let is_after = converter.changes_selection() && !filter.is_plain();
        let (after, before) = if is_after { (Some(Arc::new(filter.clone())), filter.by_name_only()) } else { (None, filter) };
        (Some(Self { served: Arc::clone(served), filter: after }), before)
    }

    /// Converts the initial objects and events. Objects are converted together, to save requests.
    pub(crate) async fn beginning(&self, Beginning { state, events, revision }: Beginning) -> ApiResult<Beginning> {
        let mut state = self.served.in_version(state).await?;
        state.retain(|object| self.filter.as_ref().is_none_or(|filter| filter.matches(object)));
        let of_events = events.iter().flat_map(|delivery| delivery.changes()).filter_map(|(_, event)| event.after.clone()).collect();
        self.served.in_version(of_events).await?;
        let events = self.clone().deliveries(events).await?;
        Ok(Beginning { state, events, revision })
    }

    /// Converts deliveries, in their order.
    pub(crate) async fn deliveries(self, deliveries: Vec<Arc<Delivery>>) -> ApiResult<Vec<Arc<Delivery>>> {
        let Some(converter) = self.served.converter() else { return Ok(deliveries) };
        let mut converted = Vec::with_capacity(deliveries.len());
        for (change, event) in deliveries.iter().flat_map(|together| together.changes()) {
            let event = converter.converted.event(event, || self.event(event)).await?;
            let change = match &self.filter {
                None => Some(*change),
                Some(filter) => event.change_for(filter),
            };
            converted.extend(change.map(|change| (change, event)));
        }
        Ok(Delivery::of(converted))
    }

    async fn event(&self, event: &Event) -> ApiResult<Event> {
        let objects = event.old().into_iter().chain(&event.after).cloned().collect();
        let mut converted = self.served.in_version(objects).await?.into_iter();
        let before = match &event.before {
            Before::Object(_) => converted.next().map_or(Before::Nothing, Before::Object),
            Before::Nothing => Before::Nothing,
            Before::Forgotten => Before::Forgotten,
        };
        Ok(Event::new(event.revision, before, converted.next()))
    }
}
