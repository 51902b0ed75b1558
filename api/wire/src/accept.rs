//! The representation of an answer that the client accepts: JSON, YAML or protobuf; the object itself, a Table or its metadata
//! only.

use http::{HeaderMap, header};

use crate::media::{Encoding, Form, Media};
use crate::protobuf;
use crate::status::{ApiError, ApiResult};

/// The purpose of the request: lists of metadata have a name of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An object as it is.
    Object,
    /// A list.
    List,
    /// A watch.
    Watch,
    /// Always itself.
    Error,
}

const OFFERED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// The highest number of media ranges that are read.
const RANGES_LEN_MAX: usize = 32;

/// The first acceptable range of the header, by weight; without header, JSON. `has_protobuf` tells whether the kind has that
/// form; the metadata of every kind has.
pub fn negotiate(header: Option<&str>, answer: Answer, has_protobuf: &dyn Fn() -> bool) -> ApiResult<Media> {
    let Some(header) = header.filter(|header| !header.trim().is_empty()) else { return Ok(Media::JSON) };
    // The header of nearly every client.
    if matches!(header, "application/json" | "*/*") {
        return Ok(Media::JSON);
    }
    ranges(header).iter().find_map(|range| range.media(answer, has_protobuf)).ok_or_else(|| ApiError::not_acceptable(OFFERED))
}

/// The media type of an error for a client that sends this header.
pub fn of_errors(headers: &HeaderMap) -> Encoding {
    let header = text(headers).filter(|header| header.contains(protobuf::MEDIA));
    match negotiate(header, Answer::Error, &|| true) {
        Ok(Media { encoding: Encoding::Protobuf, .. }) => Encoding::Protobuf,
        _ => Encoding::Json,
    }
}

/// The header of a request.
pub fn text(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok())
}

/// The ranges of a header, the weightiest first.
fn ranges(header: &str) -> Vec<Range<'_>> {
    let mut ranges: Vec<Range<'_>> = header.split(',').take(RANGES_LEN_MAX).map(Range::parse).filter(|range| range.weight > 0.0).collect();
    ranges.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    ranges
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

    fn media(&self, answer: Answer, has_protobuf: &dyn Fn() -> bool) -> Option<Media> {
        let encoding = match self.kind {
            "application/json" | "*/*" | "application/*" => Encoding::Json,
            "application/yaml" if answer != Answer::Watch => Encoding::Yaml,
            protobuf::MEDIA => Encoding::Protobuf,
            _ => return None,
        };
        let is_protobuf = encoding == Encoding::Protobuf;
        let Some(shape) = self.shape else {
            return (!is_protobuf || has_protobuf()).then_some(Media { encoding, form: Form::Object, beta: false });
        };
        let beta = match (self.group, self.version) {
            (Some("meta.k8s.io"), Some("v1")) => false,
            (Some("meta.k8s.io"), Some("v1beta1")) => true,
            _ => return None,
        };
        let form = match (shape, answer) {
            (_, Answer::Error) => return None,
            ("Table", _) if !is_protobuf => Form::Table,
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
    fn the_first_available_type_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let protobuf = "application/vnd.kubernetes.protobuf";
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        let (json, yes) = (Encoding::Json, Encoding::Protobuf);
        let cases = [
            ("", Answer::Object, true, Some((json, Form::Object, false))),
            (table, Answer::List, true, Some((json, Form::Table, false))),
            ("application/vnd.kubernetes.protobuf,application/json", Answer::Object, true, Some((yes, Form::Object, false))),
            ("application/vnd.kubernetes.protobuf,application/json", Answer::Object, false, Some((json, Form::Object, false))),
            (protobuf, Answer::Object, false, None),
            (metadata, Answer::Object, false, Some((yes, Form::Metadata, false))),
            (metadata, Answer::Error, true, Some((json, Form::Object, false))),
            ("application/vnd.kubernetes.protobuf;stream=watch", Answer::Watch, true, Some((yes, Form::Object, false))),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", Answer::List, true, None),
            (
                "application/json;q=0.5,application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
                Answer::List,
                true,
                Some((json, Form::Metadata, true)),
            ),
            ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", Answer::List, true, None),
            ("application/json;stream=watch", Answer::Watch, true, Some((json, Form::Object, false))),
            ("application/json;as=Table;v=v2;g=meta.k8s.io", Answer::List, true, None),
        ];
        for (header, answer, has_form, expected) in cases {
            let media = negotiate(Some(header), answer, &|| has_form).ok();
            assert_eq!(media.map(|media| (media.encoding, media.form, media.beta)), expected, "{header}");
        }
        assert_eq!(negotiate(Some(protobuf), Answer::List, &|| true).map(|media| media.encoding).ok(), Some(yes));
    }
}
