//! Flags for authentication, authorization, audit and encryption at rest, and their translation into the API server's settings.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use api_auth::{OidcConfig, StaticTokens};
use api_server::{AtRest, AuditConfig, AuditLog, AuditPolicy, OidcProvider};
use clap::Args;

/// Upstream's flags of the same names.
#[derive(Args, Clone)]
pub struct Access {
    /// CSV file of tokens: token,user,uid,"group1,group2".
    #[arg(long)]
    pub token_auth_file: Option<PathBuf>,
    /// Accept requests without credentials as user system:anonymous.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub anonymous_auth: bool,
    /// Issuer of ServiceAccount tokens [default: the name of the API server in the cluster].
    #[arg(long)]
    pub service_account_issuer: Option<String>,
    /// URL of the keys of ServiceAccount tokens, if they are not published under the issuer.
    #[arg(long)]
    pub service_account_jwks_uri: Option<String>,
    /// Audiences of tokens that the API server accepts [default: the issuer].
    #[arg(long, value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// File with the EncryptionConfiguration for objects in the store.
    #[arg(long)]
    pub encryption_provider_config: Option<PathBuf>,
    #[command(flatten)]
    pub audit: Audit,
    #[command(flatten)]
    pub oidc: Oidc,
}

/// The audit log.
#[derive(Args, Clone)]
pub struct Audit {
    /// File with the audit Policy.
    #[arg(long)]
    pub audit_policy_file: Option<PathBuf>,
    /// File of the audit log, `-` for standard output; without this flag there is no audit log.
    #[arg(long)]
    pub audit_log_path: Option<PathBuf>,
    /// Format of the audit log.
    #[arg(long, default_value = "json", value_parser = ["json"])]
    pub audit_log_format: String,
    /// Days to keep rotated audit logs; 0 keeps them forever.
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxage: u32,
    /// Maximum number of rotated audit logs; 0 keeps all.
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxbackup: u32,
    /// Size in megabytes at which the audit log is rotated; 0 means 100.
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxsize: u32,
}

/// Users of an OpenID Connect provider.
#[derive(Args, Clone)]
pub struct Oidc {
    /// URL of the OpenID Connect provider, https.
    #[arg(long)]
    pub oidc_issuer_url: Option<String>,
    /// Client ID for which tokens must be issued.
    #[arg(long)]
    pub oidc_client_id: Option<String>,
    /// Claim with the name of the user.
    #[arg(long, default_value = "sub")]
    pub oidc_username_claim: String,
    /// Prefix of user names, `-` for none [default: the URL of the issuer and #, except for the claim email].
    #[arg(long, default_value = "", hide_default_value = true)]
    pub oidc_username_prefix: String,
    /// Claim with the groups of the user.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub oidc_groups_claim: String,
    /// Prefix of groups.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub oidc_groups_prefix: String,
    /// Claims that every token must have, as key=value.
    #[arg(long, value_delimiter = ',')]
    pub oidc_required_claim: Vec<String>,
    /// Signature algorithms that tokens may use.
    #[arg(long, value_delimiter = ',', default_value = "RS256")]
    pub oidc_signing_algs: Vec<String>,
    /// File with the certificate authorities of the provider [default: those of this machine].
    #[arg(long)]
    pub oidc_ca_file: Option<PathBuf>,
}

impl Access {
    /// Copies the flags into the API server's settings.
    pub fn apply(&self, config: &mut api_server::Config) -> anyhow::Result<()> {
        config.anonymous_auth = self.anonymous_auth;
        if let Some(path) = &self.token_auth_file {
            let flag = "--token-auth-file";
            config.token_auth_file = StaticTokens::parse(&read(flag, path)?).with_context(|| reading(flag, path))?;
        }
        if let Some(path) = &self.encryption_provider_config {
            let flag = "--encryption-provider-config";
            config.encryption = AtRest::parse(&read(flag, path)?).with_context(|| reading(flag, path))?;
        }
        config.service_account_issuer.clone_from(&self.service_account_issuer);
        config.service_account_jwks_uri.clone_from(&self.service_account_jwks_uri);
        config.api_audiences.clone_from(&self.api_audiences);
        config.audit = self.audit.config()?;
        config.oidc = self.oidc.provider()?;
        Ok(())
    }
}

impl Audit {
    fn config(&self) -> anyhow::Result<Option<AuditConfig>> {
        let (policy, path) = match (&self.audit_policy_file, &self.audit_log_path) {
            (None, None) => return Ok(None),
            (Some(policy), Some(path)) => (policy, path),
            // Upstream starts and records nothing. But a user who gives one of these flags expects a log.
            (Some(_), None) => bail!("--audit-policy-file needs --audit-log-path"),
            (None, Some(_)) => bail!("--audit-log-path needs --audit-policy-file"),
        };
        let flag = "--audit-policy-file";
        let policy = AuditPolicy::parse(&read(flag, policy)?).with_context(|| reading(flag, policy))?;
        let log = AuditLog {
            path: path.clone(),
            max_age_days: self.audit_log_maxage,
            max_backups: self.audit_log_maxbackup,
            max_size_mb: self.audit_log_maxsize,
        };
        Ok(Some(AuditConfig { policy, log }))
    }
}

impl Oidc {
    fn provider(&self) -> anyhow::Result<Option<OidcProvider>> {
        let (issuer, client) = match (&self.oidc_issuer_url, &self.oidc_client_id) {
            (None, None) => return Ok(None),
            (Some(issuer), Some(client)) => (issuer, client),
            _ => bail!("--oidc-issuer-url and --oidc-client-id must be specified together when any of them is"),
        };
        let mut config = OidcConfig::new(issuer, client);
        config.username_claim.clone_from(&self.oidc_username_claim);
        config.username_prefix.clone_from(&self.oidc_username_prefix);
        config.groups_claim.clone_from(&self.oidc_groups_claim);
        config.groups_prefix.clone_from(&self.oidc_groups_prefix);
        config.signing_algs.clone_from(&self.oidc_signing_algs);
        for claim in &self.oidc_required_claim {
            let Some((name, value)) = claim.split_once('=') else { bail!("--oidc-required-claim {claim} is not key=value") };
            config.required_claims.insert(name.to_owned(), value.to_owned());
        }
        let ca_pem = self.oidc_ca_file.as_ref().map(|path| read("--oidc-ca-file", path)).transpose()?;
        Ok(Some(OidcProvider { config, ca_pem }))
    }
}

/// What is attempted with the file of a flag.
pub(crate) fn reading(flag: &str, path: &Path) -> String {
    format!("reading {flag} {}", path.display())
}

/// Reads the file of a flag.
pub(crate) fn read(flag: &str, path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| reading(flag, path))
}
