//! Facts about metadata and the bodies that all groups share.

use super::{Table, field, map, set, table};

pub(super) const TABLES: &[Table] = &[
    table("io.k8s.apimachinery.pkg.apis.meta.v1.APIResource", &["categories", "shortNames"], &[]),
    table("io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList", &["resources"], &[]),
    table("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", &["dryRun"], &[]),
    table("io.k8s.apimachinery.pkg.apis.meta.v1.FieldSelectorRequirement", &["values"], &[]),
    table("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector", &["matchExpressions"], &[field("").map_atomic()]),
    table("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement", &["values"], &[]),
    table(
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        &["managedFields"],
        &[set("finalizers").merge(), map("ownerReferences", &["uid"]).merge_by("uid")],
    ),
    table("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference", &[], &[field("").map_atomic()]),
    table("io.k8s.apimachinery.pkg.apis.meta.v1.StatusDetails", &["causes"], &[]),
];
