//! Leases: who has them and when they were last renewed. The namespace is not first among the labels but with the others
//! of a sample, as in kube-state-metrics.

use api_model::k8s_openapi::api::coordination::v1::Lease;

use crate::family::{Family, Kind, gauge};
use crate::metadata::named;
use crate::read::{list, or_empty, text};
use crate::series::{Label, Series};

impl Kind for Lease {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        named("lease", self)
    }
}

const FAMILIES: &[Family<Lease>] = &[
    gauge("kube_lease_owner", "An owner of the Lease, and who has the Lease.", owner),
    gauge("kube_lease_renew_time", "When the Lease was last renewed, in Unix seconds.", |lease, series| {
        if let Some(time) = &or_empty(&lease.spec).renew_time {
            series.sample(&[("namespace", text(&lease.metadata.namespace))], time.0.as_second() as f64);
        }
    }),
];

fn owner(lease: &Lease, series: &mut Series<'_>) {
    let spec = or_empty(&lease.spec);
    let rest = [("namespace", text(&lease.metadata.namespace)), ("lease_holder", text(&spec.holder_identity))];
    let owners = list(&lease.metadata.owner_references);
    let mut write = |kind: &str, name: &str| {
        let mut labels = vec![("owner_kind", kind), ("owner_name", name)];
        labels.extend(rest);
        series.info(&labels);
    };
    owners.iter().for_each(|owner| write(&owner.kind, &owner.name));
    if owners.is_empty() {
        write("", "");
    }
}
