//! `projected` volumes: ServiceAccount tokens, ConfigMaps, Secrets and fields of the Pod in one directory in memory. A new
//! token is requested when 80 % of the old one's life is over, as upstream.

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ServiceAccountTokenProjection, Volume, VolumeProjection};

use crate::kind::{Context, VolumeKind};
use crate::payload::{self, File, Medium, Payload};
use crate::source::{SourceError, TokenAsk, config_map_data, secret_data};
use crate::{VolumeError, downward};

/// Upstream's default life of a projected token.
const TOKEN_LIFE_S: i64 = 3_600;
/// The share of a token's life after which it is replaced, in percent.
const ROTATE_AFTER_PERCENT: i32 = 80;
/// The shortest time for which a token is used, even when it has expired by this machine's clock: a clock that is ahead of the
/// server's must not make the node request tokens without end.
const USED_MIN: SignedDuration = SignedDuration::from_secs(60);
/// The name of the file beside the volume that has the time at which its tokens must be replaced.
const DUE_SUFFIX: &str = ".token-due";

/// The kind.
pub(crate) struct ProjectedVolume;

#[async_trait]
impl VolumeKind for ProjectedVolume {
    fn name(&self) -> &'static str {
        "projected"
    }

    async fn set_up(&self, context: &Context<'_>, volume: &Volume) -> Result<Option<Timestamp>, VolumeError> {
        let Some(wanted) = &volume.projected else { return Ok(None) };
        let path = self.path(&context.pod_dir, volume);
        let mode = payload::mode(wanted.default_mode);
        let due_file = path.with_file_name(format!(".{}{DUE_SUFFIX}", volume.name));
        let known_due = read_due(&due_file).filter(|due| *due > context.now);
        let mut due: Option<Timestamp> = None;
        let mut payload = Payload::default();
        for source in wanted.sources.iter().flatten() {
            if let Some(token) = &source.service_account_token {
                let reused = known_due.and_then(|due| Some((payload::read(&path, &token.path)?, due)));
                let (bytes, at) = match reused {
                    Some(reused) => reused,
                    None => fresh_token(context, token).await?,
                };
                due = Some(due.map_or(at, |due| due.min(at)));
                payload.add(&token.path, token_file(context, bytes, mode))?;
            } else {
                add(context, source, mode, &mut payload).await?;
            }
        }
        payload::write(context, path, Medium::Memory, payload).await?;
        if let Some(due) = due.filter(|due| Some(*due) != known_due) {
            tokio::fs::write(&due_file, due.to_string()).await.map_err(VolumeError::io("writing", &due_file))?;
        }
        Ok(due)
    }

    fn read_only(&self, _volume: &Volume) -> bool {
        true
    }
}

async fn add(context: &Context<'_>, source: &VolumeProjection, mode: u32, payload: &mut Payload) -> Result<(), VolumeError> {
    if let Some(wanted) = &source.config_map {
        let optional = wanted.optional.unwrap_or(false);
        let data = match context.source.config_map(context.namespace(), &wanted.name).await {
            Err(SourceError::NotFound { .. }) if optional => Default::default(),
            other => config_map_data(other?),
        };
        return payload.add_items("config", &data, wanted.items.as_deref(), mode, optional);
    }
    if let Some(wanted) = &source.secret {
        let optional = wanted.optional.unwrap_or(false);
        let data = match context.source.secret(context.namespace(), &wanted.name).await {
            Err(SourceError::NotFound { .. }) if optional => Default::default(),
            other => secret_data(other?),
        };
        return payload.add_items("secret", &data, wanted.items.as_deref(), mode, optional);
    }
    if let Some(wanted) = &source.downward_api {
        return downward::add_files(context, wanted.items.as_deref().unwrap_or_default(), mode, payload);
    }
    if source.cluster_trust_bundle.is_some() {
        return Err(VolumeError::Unsupported("clusterTrustBundle".to_owned()));
    }
    if source.pod_certificate.is_some() {
        return Err(VolumeError::Unsupported("podCertificate".to_owned()));
    }
    Ok(())
}

/// A new token and when it is to be replaced.
async fn fresh_token(context: &Context<'_>, wanted: &ServiceAccountTokenProjection) -> Result<(Vec<u8>, Timestamp), VolumeError> {
    let account = context.pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    let ask = TokenAsk {
        namespace: context.namespace().to_owned(),
        service_account: account.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".to_owned()),
        pod: context.pod.metadata.name.clone().unwrap_or_default(),
        pod_uid: context.pod.metadata.uid.clone().unwrap_or_default(),
        audience: wanted.audience.clone().unwrap_or_default(),
        expiration_seconds: wanted.expiration_seconds.unwrap_or(TOKEN_LIFE_S),
    };
    let token = context.source.token(&ask).await?;
    let life = token.expires_at.duration_since(context.now).max(SignedDuration::ZERO);
    let used = (life * ROTATE_AFTER_PERCENT / 100).max(USED_MIN);
    let due = context.now.checked_add(used).unwrap_or(token.expires_at);
    Ok((token.token.into_bytes(), due))
}

/// Only the Pod's user may read a token where the Pod names a user, as upstream.
fn token_file(context: &Context<'_>, bytes: Vec<u8>, mode: u32) -> File {
    let owner = context.fs_user();
    let narrow = owner.is_some() || context.fs_group().is_some();
    File { bytes, mode: if narrow { 0o600 } else { mode }, owner }
}

fn read_due(path: &std::path::Path) -> Option<Timestamp> {
    std::fs::read_to_string(path).ok()?.parse().ok()
}
