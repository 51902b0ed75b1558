//! Volumes, claims, their classes and drivers.

use api_model::storage::{IS_DEFAULT_CLASS, OLD_CLASS};
use jiff::Timestamp;
use serde_json::Value;

use crate::printer::{AGE, Column, NAME, Printer, boolean, integer, text as column, wide};
use crate::read::{age, at, flag_or, list, map, name, plain, text, text_or, texts};

const GROUP: &str = "storage.k8s.io";
const VOLUME_MODE: Column<'static> = wide("VolumeMode", "Whether it holds files or is a bare device.");
const ATTRIBUTES_CLASS: Column<'static> = column("VolumeAttributesClass", "Its VolumeAttributesClass.");
const STORAGE_CLASS: Column<'static> = column("StorageClass", "Its StorageClass.");
const ACCESS_MODES: Column<'static> = column("Access Modes", "RWO, ROX, RWX or RWOP: who may mount it at once, and how.");

pub(crate) const PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "PersistentVolume",
        columns: &[
            NAME,
            column("Capacity", "How much it holds."),
            ACCESS_MODES,
            column("Reclaim Policy", "What becomes of it when its claim goes."),
            column("Status", "Whether it is available, bound, released or failed."),
            column("Claim", "The claim it is bound to."),
            STORAGE_CLASS,
            ATTRIBUTES_CLASS,
            column("Reason", "Why it failed."),
            AGE,
            VOLUME_MODE,
        ],
        cells: volume,
    },
    Printer {
        group: "",
        kind: "PersistentVolumeClaim",
        columns: &[
            NAME,
            column("Status", "Whether it is pending, bound or lost."),
            column("Volume", "The volume it is bound to."),
            column("Capacity", "How much that volume holds."),
            ACCESS_MODES,
            STORAGE_CLASS,
            ATTRIBUTES_CLASS,
            AGE,
            VOLUME_MODE,
        ],
        cells: claim,
    },
    Printer {
        group: GROUP,
        kind: "StorageClass",
        columns: &[
            NAME,
            column("Provisioner", "What makes its volumes."),
            column("ReclaimPolicy", "What becomes of a volume when its claim goes."),
            column("VolumeBindingMode", "When claims are bound."),
            column("AllowVolumeExpansion", "Whether claims may grow."),
            AGE,
        ],
        cells: storage_class,
    },
    Printer {
        group: GROUP,
        kind: "VolumeAttributesClass",
        columns: &[NAME, column("DriverName", "The driver whose volumes have these attributes."), AGE],
        cells: |object, now| vec![class_name(object), text(object, "driverName").into(), age(object, now)],
    },
    Printer {
        group: GROUP,
        kind: "VolumeAttachment",
        columns: &[
            NAME,
            Column { format: "name", ..column("Attacher", "The driver that attaches.") },
            column("PV", "The volume."),
            column("Node", "The node it is attached to."),
            boolean("Attached", "Whether it is attached."),
            AGE,
        ],
        cells: attachment,
    },
    Printer {
        group: GROUP,
        kind: "CSINode",
        columns: &[NAME, integer("Drivers", "Drivers indicates the number of CSI drivers registered on the node"), AGE],
        cells: |object, now| vec![name(object), list(object, "spec.drivers").len().into(), age(object, now)],
    },
    Printer {
        group: GROUP,
        kind: "CSIDriver",
        columns: &[
            NAME,
            boolean("AttachRequired", "Whether volumes are attached before they are mounted."),
            boolean("PodInfoOnMount", "Whether the driver is told about the Pod."),
            boolean("StorageCapacity", "Whether the scheduler minds the driver's capacity."),
            column("TokenRequests", "Audiences of the tokens the driver gets."),
            boolean("RequiresRepublish", "Whether the driver is called again and again."),
            column("Modes", "Lifecycles of volumes it supports."),
            AGE,
        ],
        cells: driver,
    },
    Printer {
        group: GROUP,
        kind: "CSIStorageCapacity",
        columns: &[NAME, column("StorageClassName", "The StorageClass."), column("Capacity", "How much there is.")],
        cells: |object, _| vec![name(object), text(object, "storageClassName").into(), plain(at(object, "capacity"), "<unset>").into()],
    },
];

fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let claim = at(object, "spec.claimRef").map_or(String::new(), |claim| format!("{}/{}", text(claim, "namespace"), text(claim, "name")));
    vec![
        name(object),
        plain(at(object, "spec.capacity.storage"), "0").into(),
        access_modes(object, "spec.accessModes").into(),
        text(object, "spec.persistentVolumeReclaimPolicy").into(),
        phase(object),
        claim.into(),
        storage_class_name(object),
        text_or(object, "spec.volumeAttributesClassName", "<unset>"),
        text(object, "status.reason").into(),
        age(object, now),
        text_or(object, "spec.volumeMode", "<unset>"),
    ]
}

fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let volume = text(object, "spec.volumeName");
    let (capacity, modes) = match volume {
        "" => (String::new(), String::new()),
        _ => (plain(at(object, "status.capacity.storage"), "0"), access_modes(object, "status.accessModes")),
    };
    vec![
        name(object),
        phase(object),
        volume.into(),
        capacity.into(),
        modes.into(),
        storage_class_name(object),
        text_or(object, "spec.volumeAttributesClassName", "<unset>"),
        age(object, now),
        text_or(object, "spec.volumeMode", "<unset>"),
    ]
}

fn phase(object: &Value) -> Value {
    if api_model::meta::is_deleting(object) { "Terminating".into() } else { text(object, "status.phase").into() }
}

/// Each access mode once, in upstream's order.
fn access_modes(object: &Value, path: &str) -> String {
    let modes = texts(object, path);
    let names = [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    names.iter().filter(|(mode, _)| modes.contains(mode)).map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

/// The class from the deprecated annotation, or else from the field.
fn storage_class_name(object: &Value) -> Value {
    match annotation(object, OLD_CLASS) {
        Some(class) => class.into(),
        None => text(object, "spec.storageClassName").into(),
    }
}

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    map(object, "metadata.annotations")?.get(key)?.as_str()
}

/// The name of a class, with a mark for the default class.
fn class_name(object: &Value) -> Value {
    let defaults = [
        IS_DEFAULT_CLASS,
        "storageclass.beta.kubernetes.io/is-default-class",
        "volumeattributesclass.alpha.kubernetes.io/is-default-class",
    ];
    let is_default = defaults.iter().any(|key| annotation(object, key) == Some("true"));
    let name = api_model::meta::name(object);
    if is_default { format!("{name} (default)").into() } else { name.into() }
}

fn storage_class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        class_name(object),
        text(object, "provisioner").into(),
        text_or(object, "reclaimPolicy", "Delete"),
        text_or(object, "volumeBindingMode", "Immediate"),
        flag_or(object, "allowVolumeExpansion", false).into(),
        age(object, now),
    ]
}

fn attachment(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        text(object, "spec.attacher").into(),
        text(object, "spec.source.persistentVolumeName").into(),
        text(object, "spec.nodeName").into(),
        flag_or(object, "status.attached", false).into(),
        age(object, now),
    ]
}

fn driver(object: &Value, now: Timestamp) -> Vec<Value> {
    let modes = texts(object, "spec.volumeLifecycleModes");
    let audiences = || list(object, "spec.tokenRequests").iter().map(|request| text(request, "audience")).collect::<Vec<_>>().join(",");
    vec![
        name(object),
        flag_or(object, "spec.attachRequired", true).into(),
        flag_or(object, "spec.podInfoOnMount", false).into(),
        flag_or(object, "spec.storageCapacity", false).into(),
        at(object, "spec.tokenRequests").map_or_else(|| "<unset>".to_owned(), |_| audiences()).into(),
        flag_or(object, "spec.requiresRepublish", false).into(),
        if modes.is_empty() { "<none>".into() } else { modes.join(",").into() },
        age(object, now),
    ]
}

#[cfg(test)]
mod tests;
