//! When a CronJob is due: the newest time that has passed since the last Job, how many others were missed, and when to look
//! again.

use std::time::Duration;

use api_model::cron::{self, Schedule};
use api_model::message::Message;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec};

use crate::meta;
use crate::note::{Note, warning};

/// More missed times than this number are reported, upstream's.
const MISSED_MAX: i64 = 100;
/// The next pass is later than the next time by this duration, for the case that the clock is set back a little; upstream's.
const DELAY: SignedDuration = SignedDuration::from_millis(100);

/// A schedule in its time zone.
pub struct Timetable {
    schedule: Schedule,
    zone: TimeZone,
}

/// The times since the last Job.
#[derive(Debug, PartialEq, Eq)]
pub struct Due {
    /// The newest time that is not after now.
    pub newest: Option<Timestamp>,
    /// An estimate of the number of times that have passed unused.
    pub missed: i64,
}

impl Timetable {
    /// The timetable of a CronJob, or the event of one whose schedule cannot be parsed.
    pub fn new(spec: &CronJobSpec, zone: TimeZone) -> Result<Self, Note> {
        let unparseable = |problem| warning("UnparseableSchedule", format!("unparseable schedule: {:?} : {problem}", spec.schedule));
        Ok(Self { schedule: Schedule::parse(&spec.schedule).map_err(unparseable)?, zone })
    }

    /// The times from `earliest` to now.
    pub fn due(&self, earliest: Timestamp, now: Timestamp) -> Result<Due, Message> {
        let first = self.next(earliest);
        if first.is_some_and(|first| now < first) {
            return Ok(Due { newest: None, missed: 0 });
        }
        let second = first.and_then(|first| self.next(first));
        if second.is_some_and(|second| now < second) {
            return Ok(Due { newest: first, missed: 0 });
        }
        let (Some(first), Some(second)) = (first, second) else {
            return Err("time difference between two schedules is less than 1 second".into());
        };
        // Upstream's estimate: all times have the distance of the first two. The search for the newest time begins two distances
        // before now, also where the distances differ.
        let distance = (second.as_second() - first.as_second()).max(1);
        let missed = now.duration_since(first).as_secs() / distance + 1;
        let start = Timestamp::from_second(first.as_second() + (missed - 2) * distance).unwrap_or(first);
        Ok(Due { newest: self.schedule.last(start, now, &self.zone), missed })
    }

    /// The event of a time that has passed unused and is before the starting deadline now.
    pub fn too_late(&self, cron_job: &CronJob, now: Timestamp) -> Option<Note> {
        cron_job.spec.starting_deadline_seconds?;
        let missed = self.due(last_start(cron_job), now).ok()?.newest?;
        let time = missed.strftime("%a, %d %b %Y %H:%M:%S +0000");
        Some(warning("MissSchedule", format!("Missed scheduled time to start a job: {time}")))
    }

    /// How long until the next pass, or `None` if the schedule has no further time.
    pub fn wait(&self, cron_job: &CronJob, now: Timestamp) -> Option<Duration> {
        let earliest = last_start(cron_job);
        let from = match self.due(earliest, now) {
            Ok(Due { newest: Some(newest), .. }) => newest,
            Ok(Due { newest: None, missed: 0 }) => earliest,
            Ok(_) | Err(_) => now,
        };
        let wait = self.next(from)?.duration_since(now).checked_add(DELAY)?;
        Some(Duration::try_from(wait).unwrap_or_default())
    }

    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.schedule.next(after, &self.zone)
    }
}

/// The time zone of a CronJob, or the event of one whose time zone is unknown. `local` is that of a CronJob that names none.
pub fn zone(spec: &CronJobSpec, local: &TimeZone) -> Result<TimeZone, Note> {
    let Some(name) = spec.time_zone.as_deref() else { return Ok(local.clone()) };
    let unknown = || warning("UnknownTimeZone", format!("invalid timeZone: {name:?}: unknown time zone {name}"));
    cron::time_zone(name).ok_or_else(unknown)
}

/// The time of the last Job, or of the CronJob's creation.
pub fn last_start(cron_job: &CronJob) -> Timestamp {
    let last = cron_job.status.as_ref().and_then(|status| meta::instant(status.last_schedule_time.as_ref()));
    last.or_else(|| meta::instant(cron_job.metadata.creation_timestamp.as_ref())).unwrap_or_default()
}

/// The time before which no Job starts any more: that of the last Job, or later by `spec.startingDeadlineSeconds`.
pub fn earliest_start(cron_job: &CronJob, now: Timestamp) -> Timestamp {
    let deadline = cron_job.spec.starting_deadline_seconds;
    let bound = deadline.and_then(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok());
    bound.map_or(last_start(cron_job), |bound| bound.max(last_start(cron_job)))
}

impl Due {
    /// Whether upstream warns about the number of missed times.
    pub fn is_too_many(&self) -> bool {
        self.missed > MISSED_MAX
    }
}
