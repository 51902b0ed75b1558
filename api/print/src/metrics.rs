//! What nodes and Pods use. The columns are a metrics server's.

use api_model::quantity;
use serde_json::Value;

use crate::printer::{Column, Printer};
use crate::read::{list, name, plain, text};

const COLUMNS: &[Column<'static>] = &[
    Column { name: "Name", kind: "string", format: "name", description: "Name of the resource", priority: 0 },
    column("cpu", "quantity"),
    column("memory", "quantity"),
    column("Window", "duration"),
];

pub(crate) const PRINTERS: &[Printer] = &[
    Printer {
        group: "metrics.k8s.io",
        kind: "NodeMetrics",
        columns: COLUMNS,
        cells: |object, _| {
            let amount = |resource: &str| plain(object.get("usage").and_then(|usage| usage.get(resource)), "").into();
            vec![name(object), amount("cpu"), amount("memory"), text(object, "window").into()]
        },
    },
    Printer {
        group: "metrics.k8s.io",
        kind: "PodMetrics",
        columns: COLUMNS,
        cells: |object, _| {
            let cpu = quantity::decimal_text(sum(object, "cpu"), false);
            vec![name(object), cpu.into(), quantity::binary_text(sum(object, "memory")).into(), text(object, "window").into()]
        },
    },
];

const fn column(name: &'static str, format: &'static str) -> Column<'static> {
    Column { name, kind: "string", format, description: "", priority: 0 }
}

/// The sum over the containers, in billionths.
fn sum(object: &Value, resource: &str) -> i128 {
    let amounts = list(object, "containers").iter().map(|container| text(container, &format!("usage.{resource}")));
    amounts.filter_map(|amount| quantity::nano(amount).ok()).fold(0, i128::saturating_add)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tests::row;

    #[test]
    fn nodes_and_the_sums_of_pods() {
        let usage = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
        let node = json!({"window": "15.016s", "usage": usage("123456789n", "1Gi")});
        assert_eq!(row("metrics.k8s.io", "NodeMetrics", node), "x | 123456789n | 1Gi | 15.016s");
        let containers = json!([{"name": "a", "usage": usage("1500u", "3Mi")}, {"name": "b", "usage": usage("500u", "1Mi")}]);
        let pod = json!({"window": "15s", "containers": containers});
        assert_eq!(row("metrics.k8s.io", "PodMetrics", pod), "x | 2m | 4Mi | 15s");
        assert_eq!(row("metrics.k8s.io", "PodMetrics", json!({"window": "15s"})), "x | 0 | 0 | 15s");
    }
}
