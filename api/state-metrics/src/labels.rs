//! Names of Prometheus labels for the keys of a map, such as the labels of an object. Two keys that would have the same
//! name get a number.

use std::collections::BTreeMap;

use crate::quantity::sanitized;

/// One label for each entry of the map. Its name is the prefix and the key in snake case.
pub(crate) fn of_map<'a>(prefix: &str, map: Option<&'a BTreeMap<String, String>>) -> Vec<(String, &'a str)> {
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    let entries = || map.into_iter().flatten().map(|(key, value)| (name(prefix, key), value.as_str()));
    for (name, _) in entries() {
        *uses.entry(name).or_default() += 1;
    }
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let numbered = |name: String| {
        if uses.get(&name).is_none_or(|count| *count == 1) {
            return name;
        }
        let number = numbers.entry(name.clone()).or_default();
        *number += 1;
        format!("{name}_conflict{number}")
    };
    let (names, values): (Vec<_>, Vec<_>) = entries().unzip();
    names.into_iter().map(numbered).zip(values).collect()
}

fn name(prefix: &str, key: &str) -> String {
    let mut name = format!("{prefix}_");
    let mut before = '_';
    for letter in sanitized(key).chars() {
        if letter.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
        before = letter;
    }
    name
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    #[test]
    fn keys_become_names_and_equal_names_get_numbers() {
        let keys = ["app.kubernetes.io/name", "devicePath", "foo-bar", "foo_bar"];
        let map: BTreeMap<String, String> = keys.iter().map(|key| ((*key).to_owned(), (*key).to_owned())).collect();
        let labels = super::of_map("label", Some(&map));
        let names: Vec<&str> = labels.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["label_app_kubernetes_io_name", "label_device_path", "label_foo_bar_conflict1", "label_foo_bar_conflict2"]);
        assert_eq!(labels.last().map(|(_, value)| *value), Some("foo_bar"));
    }
}
