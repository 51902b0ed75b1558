//! The events of a watch in the version that the watch is for.

use std::sync::Arc;

use api_cache::{Before, Beginning, Delivery, Event, Filter};
use api_wire::status::ApiResult;

use crate::registry::Served;

/// Turns what a watch is told into the version that it is for.
#[derive(Clone)]
pub(crate) struct WatchConversion {
    served: Arc<Served>,
    /// What converted objects are held against, where a conversion may change what is asked for.
    filter: Option<Arc<Filter>>,
}

impl WatchConversion {
    /// For watches of kinds of several versions, with what stored objects are to be held against.
    pub(crate) fn of(served: &Arc<Served>, filter: Filter) -> (Option<Self>, Filter) {
        let Some(converter) = served.converter() else { return (None, filter) };
        let is_after = converter.changes_selection() && !filter.is_plain();
        let (after, before) = if is_after { (Some(Arc::new(filter.clone())), filter.by_name_only()) } else { (None, filter) };
        (Some(Self { served: Arc::clone(served), filter: after }), before)
    }

    /// What there is at the beginning, asked for together.
    pub(crate) async fn beginning(&self, Beginning { state, events, revision }: Beginning) -> ApiResult<Beginning> {
        let mut state = self.served.in_version(state).await?;
        state.retain(|object| self.filter.as_ref().is_none_or(|filter| filter.matches(object)));
        let of_events = events.iter().flat_map(|told| told.changes()).filter_map(|(_, event)| event.after.clone()).collect();
        self.served.in_version(of_events).await?;
        let events = self.clone().deliveries(events).await?;
        Ok(Beginning { state, events, revision })
    }

    /// What happens, in its order.
    pub(crate) async fn deliveries(self, deliveries: Vec<Arc<Delivery>>) -> ApiResult<Vec<Arc<Delivery>>> {
        let Some(converter) = self.served.converter() else { return Ok(deliveries) };
        let mut told = Vec::with_capacity(deliveries.len());
        for (change, event) in deliveries.iter().flat_map(|together| together.changes()) {
            let event = converter.converted.event(event, || self.event(event)).await?;
            let change = match &self.filter {
                None => Some(*change),
                Some(filter) => event.change_for(filter),
            };
            told.extend(change.map(|change| (change, event)));
        }
        Ok(Delivery::of(told))
    }

    async fn event(&self, event: &Event) -> ApiResult<Event> {
        let objects = event.old().into_iter().chain(&event.after).cloned().collect();
        let mut shown = self.served.in_version(objects).await?.into_iter();
        let before = match &event.before {
            Before::Object(_) => shown.next().map_or(Before::Nothing, Before::Object),
            Before::Nothing => Before::Nothing,
            Before::Forgotten => Before::Forgotten,
        };
        Ok(Event::new(event.revision, before, shown.next()))
    }
}
