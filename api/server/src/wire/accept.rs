//! Which representation of an answer the client wants: JSON or YAML, the object itself, a Table or
//! its metadata only.

use crate::status::{ApiError, ApiResult};

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
}

/// What of the object an answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Object,
    Table,
    /// `PartialObjectMetadata`, and `PartialObjectMetadataList` for lists.
    Metadata,
}

/// A chosen representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Media {
    pub(crate) encoding: Encoding,
    pub(crate) form: Form,
    /// Whether `Form::Table` and `Form::Metadata` are of `meta.k8s.io/v1beta1`.
    pub(crate) beta: bool,
}

impl Media {
    /// Plain JSON.
    pub(crate) const JSON: Self = Self { encoding: Encoding::Json, form: Form::Object, beta: false };

    /// `apiVersion` of tables and partial metadata.
    pub(crate) fn meta_version(self) -> &'static str {
        if self.beta { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self.encoding {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
        }
    }
}

/// What the request is for: lists of metadata have a name of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Object,
    List,
    Watch,
}

const OFFERED: &str = "application/json, application/yaml";
/// Ranges looked at; what follows is ignored.
const RANGES_LEN_MAX: usize = 32;

/// The first acceptable of what the header lists, by its weights; without header, JSON.
pub(crate) fn negotiate(header: Option<&str>, answer: Answer) -> ApiResult<Media> {
    let Some(header) = header.filter(|header| !header.trim().is_empty()) else { return Ok(Media::JSON) };
    // What nearly every client sends.
    if matches!(header, "application/json" | "*/*") {
        return Ok(Media::JSON);
    }
    let mut ranges: Vec<Range<'_>> = header.split(',').take(RANGES_LEN_MAX).map(Range::parse).filter(|range| range.weight > 0.0).collect();
    ranges.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    ranges.iter().find_map(|range| range.media(answer)).ok_or_else(|| ApiError::not_acceptable(OFFERED))
}

/// One media range of an Accept header.
struct Range<'a> {
    kind: &'a str,
    shape: Option<&'a str>,
    group: Option<&'a str>,
    version: Option<&'a str>,
    weight: f32,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let mut range = Self { kind: parts.next().unwrap_or_default(), shape: None, group: None, version: None, weight: 1.0 };
        for part in parts {
            match part.split_once('=') {
                Some(("as", value)) => range.shape = Some(value),
                Some(("g", value)) => range.group = Some(value),
                Some(("v", value)) => range.version = Some(value),
                Some(("q", value)) => range.weight = value.parse().unwrap_or(1.0),
                _ => {}
            }
        }
        range
    }

    fn media(&self, answer: Answer) -> Option<Media> {
        let encoding = match self.kind {
            "application/json" | "*/*" | "application/*" => Encoding::Json,
            "application/yaml" if answer != Answer::Watch => Encoding::Yaml,
            _ => return None,
        };
        let Some(shape) = self.shape else { return Some(Media { encoding, form: Form::Object, beta: false }) };
        let beta = match (self.group, self.version) {
            (Some("meta.k8s.io"), Some("v1")) => false,
            (Some("meta.k8s.io"), Some("v1beta1")) => true,
            _ => return None,
        };
        let form = match (shape, answer) {
            ("Table", _) => Form::Table,
            ("PartialObjectMetadata", Answer::Object | Answer::Watch) | ("PartialObjectMetadataList", Answer::List) => Form::Metadata,
            _ => return None,
        };
        Some(Media { encoding, form, beta })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_can_be_had_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let cases = [
            ("", Answer::Object, Some((Form::Object, false))),
            (table, Answer::List, Some((Form::Table, false))),
            ("application/vnd.kubernetes.protobuf,application/json", Answer::Object, Some((Form::Object, false))),
            (
                "application/json;q=0.5,application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
                Answer::List,
                Some((Form::Metadata, true)),
            ),
            ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", Answer::List, None),
            ("application/json;stream=watch", Answer::Watch, Some((Form::Object, false))),
            ("application/vnd.kubernetes.protobuf", Answer::Object, None),
            ("application/json;as=Table;v=v2;g=meta.k8s.io", Answer::List, None),
        ];
        for (header, answer, expected) in cases {
            let media = negotiate(Some(header), answer).ok();
            assert_eq!(media.map(|media| (media.form, media.beta)), expected, "{header}");
        }
    }
}
