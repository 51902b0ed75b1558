//! Facts about metadata and the bodies that every group shares.

use super::{Table, field, map, of, set};

pub(super) const TABLES: &[Table] = &[
    of("io.k8s.apimachinery.pkg.apis.meta.v1.APIResource", &["categories", "shortNames"], &[]),
    of("io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList", &["resources"], &[]),
    of("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", &["dryRun"], &[]),
    of("io.k8s.apimachinery.pkg.apis.meta.v1.FieldSelectorRequirement", &["values"], &[]),
    of("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector", &["matchExpressions"], &[field("").map_atomic()]),
    of("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement", &["values"], &[]),
    of(
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        &["managedFields"],
        &[set("finalizers").merge(), map("ownerReferences", &["uid"]).merge_by("uid")],
    ),
    of("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference", &[], &[field("").map_atomic()]),
    of("io.k8s.apimachinery.pkg.apis.meta.v1.StatusDetails", &["causes"], &[]),
];
