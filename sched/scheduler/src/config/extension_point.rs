//! The extension points of the scheduler that a profile's plugins are configured at.

/// Upstream's extension points, in the order in which upstream sets them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ExtensionPoint {
    PreFilter,
    Filter,
    PostFilter,
    Reserve,
    PreScore,
    Score,
    PreBind,
    Bind,
    PostBind,
    Permit,
    PreEnqueue,
    QueueSort,
}

impl ExtensionPoint {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::PreFilter,
        Self::Filter,
        Self::PostFilter,
        Self::Reserve,
        Self::PreScore,
        Self::Score,
        Self::PreBind,
        Self::Bind,
        Self::PostBind,
        Self::Permit,
        Self::PreEnqueue,
        Self::QueueSort,
    ];

    /// The name of the field in `plugins`.
    pub fn field(self) -> &'static str {
        match self {
            Self::PreFilter => "preFilter",
            Self::Filter => "filter",
            Self::PostFilter => "postFilter",
            Self::Reserve => "reserve",
            Self::PreScore => "preScore",
            Self::Score => "score",
            Self::PreBind => "preBind",
            Self::Bind => "bind",
            Self::PostBind => "postBind",
            Self::Permit => "permit",
            Self::PreEnqueue => "preEnqueue",
            Self::QueueSort => "queueSort",
        }
    }

    /// The name of upstream's interface for plugins of the extension point, which messages contain.
    pub fn plugin_type(self) -> String {
        format!("{self:?}Plugin")
    }
}
