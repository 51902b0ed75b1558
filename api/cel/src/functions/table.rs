//! The functions of CEL and of Kubernetes' libraries, one overload per line: `name(arguments) -> result`. Member functions
//! have their target and a colon before the name. Capital letters are type parameters.

pub(super) const TABLE: &str = "
_+_(int, int) -> int
_+_(uint, uint) -> uint
_+_(double, double) -> double
_+_(string, string) -> string
_+_(bytes, bytes) -> bytes
_+_(list<A>, list<A>) -> list<A>
_+_(timestamp, duration) -> timestamp
_+_(duration, timestamp) -> timestamp
_+_(duration, duration) -> duration
_-_(int, int) -> int
_-_(uint, uint) -> uint
_-_(double, double) -> double
_-_(timestamp, timestamp) -> duration
_-_(timestamp, duration) -> timestamp
_-_(duration, duration) -> duration
_*_(int, int) -> int
_*_(uint, uint) -> uint
_*_(double, double) -> double
_/_(int, int) -> int
_/_(uint, uint) -> uint
_/_(double, double) -> double
_%_(int, int) -> int
_%_(uint, uint) -> uint
-_(int) -> int
-_(double) -> double
!_(bool) -> bool
_&&_(bool, bool) -> bool
_||_(bool, bool) -> bool
_?_:_(bool, A, A) -> A
_==_(A, A) -> bool
_!=_(A, A) -> bool
_<_(bool, bool) -> bool
_<_(string, string) -> bool
_<_(bytes, bytes) -> bool
_<_(timestamp, timestamp) -> bool
_<_(duration, duration) -> bool
_<_(int, int) -> bool
_<_(int, uint) -> bool
_<_(int, double) -> bool
_<_(uint, int) -> bool
_<_(uint, uint) -> bool
_<_(uint, double) -> bool
_<_(double, int) -> bool
_<_(double, uint) -> bool
_<_(double, double) -> bool
_<=_(bool, bool) -> bool
_<=_(string, string) -> bool
_<=_(bytes, bytes) -> bool
_<=_(timestamp, timestamp) -> bool
_<=_(duration, duration) -> bool
_<=_(int, int) -> bool
_<=_(int, uint) -> bool
_<=_(int, double) -> bool
_<=_(uint, int) -> bool
_<=_(uint, uint) -> bool
_<=_(uint, double) -> bool
_<=_(double, int) -> bool
_<=_(double, uint) -> bool
_<=_(double, double) -> bool
_>_(bool, bool) -> bool
_>_(string, string) -> bool
_>_(bytes, bytes) -> bool
_>_(timestamp, timestamp) -> bool
_>_(duration, duration) -> bool
_>_(int, int) -> bool
_>_(int, uint) -> bool
_>_(int, double) -> bool
_>_(uint, int) -> bool
_>_(uint, uint) -> bool
_>_(uint, double) -> bool
_>_(double, int) -> bool
_>_(double, uint) -> bool
_>_(double, double) -> bool
_>=_(bool, bool) -> bool
_>=_(string, string) -> bool
_>=_(bytes, bytes) -> bool
_>=_(timestamp, timestamp) -> bool
_>=_(duration, duration) -> bool
_>=_(int, int) -> bool
_>=_(int, uint) -> bool
_>=_(int, double) -> bool
_>=_(uint, int) -> bool
_>=_(uint, uint) -> bool
_>=_(uint, double) -> bool
_>=_(double, int) -> bool
_>=_(double, uint) -> bool
_>=_(double, double) -> bool
@in(A, list<A>) -> bool
@in(A, map<A, B>) -> bool
@not_strictly_false(bool) -> bool
_[_](list<A>, int) -> A
_[_](map<A, B>, A) -> B
_[_](optional<list<A>>, int) -> optional<A>
_[_](optional<map<A, B>>, A) -> optional<B>
_[?_](list<A>, int) -> optional<A>
_[?_](map<A, B>, A) -> optional<B>
_[?_](optional<list<A>>, int) -> optional<A>
_[?_](optional<map<A, B>>, A) -> optional<B>
cel.@mapInsert(map<A, B>, A, B) -> map<A, B>
cel.@mapInsert(map<A, B>, map<A, B>) -> map<A, B>
size(string) -> int
string:size() -> int
size(bytes) -> int
bytes:size() -> int
size(list<A>) -> int
list<A>:size() -> int
size(map<A, B>) -> int
map<A, B>:size() -> int
type(A) -> type<A>
dyn(A) -> dyn
int(int) -> int
int(uint) -> int
int(double) -> int
int(string) -> int
int(timestamp) -> int
int(duration) -> int
uint(int) -> uint
double(int) -> double
uint(uint) -> uint
double(uint) -> double
uint(double) -> uint
double(double) -> double
uint(string) -> uint
double(string) -> double
string(bool) -> string
string(int) -> string
string(uint) -> string
string(double) -> string
string(string) -> string
string(bytes) -> string
string(timestamp) -> string
string(duration) -> string
string(IP) -> string
string(CIDR) -> string
bytes(bytes) -> bytes
bytes(string) -> bytes
bool(bool) -> bool
bool(string) -> bool
duration(string) -> duration
duration(duration) -> duration
duration(int) -> duration
timestamp(string) -> timestamp
timestamp(timestamp) -> timestamp
timestamp(int) -> timestamp
string:startsWith(string) -> bool
string:endsWith(string) -> bool
string:contains(string) -> bool
string:matches(string) -> bool
matches(string, string) -> bool
string:charAt(int) -> string
string:indexOf(string) -> int
string:indexOf(string, int) -> int
list<A>:indexOf(A) -> int
string:lastIndexOf(string) -> int
string:lastIndexOf(string, int) -> int
list<A>:lastIndexOf(A) -> int
string:lowerAscii() -> string
string:upperAscii() -> string
string:trim() -> string
string:reverse() -> string
string:replace(string, string) -> string
string:replace(string, string, int) -> string
string:split(string) -> list<string>
string:split(string, int) -> list<string>
string:substring(int) -> string
string:substring(int, int) -> string
list<string>:join() -> string
list<string>:join(string) -> string
string:format(list<dyn>) -> string
strings.quote(string) -> string
list<A>:isSorted() -> bool
list<int>:sum() -> int
list<uint>:sum() -> uint
list<double>:sum() -> double
list<duration>:sum() -> duration
list<A>:min() -> A
list<A>:max() -> A
sets.contains(list<A>, list<A>) -> bool
sets.equivalent(list<A>, list<A>) -> bool
sets.intersects(list<A>, list<A>) -> bool
string:find(string) -> string
string:findAll(string) -> list<string>
string:findAll(string, int) -> list<string>
url(string) -> URL
isURL(string) -> bool
URL:getScheme() -> string
URL:getHost() -> string
URL:getHostname() -> string
URL:getPort() -> string
URL:getEscapedPath() -> string
URL:getQuery() -> map<string, list<string>>
quantity(string) -> Quantity
isQuantity(string) -> bool
Quantity:sign() -> int
Quantity:isInteger() -> bool
Quantity:asInteger() -> int
Quantity:asApproximateFloat() -> double
Quantity:isGreaterThan(Quantity) -> bool
Quantity:isLessThan(Quantity) -> bool
Quantity:compareTo(Quantity) -> int
Quantity:add(Quantity) -> Quantity
Quantity:add(int) -> Quantity
Quantity:sub(Quantity) -> Quantity
Quantity:sub(int) -> Quantity
ip(string) -> IP
isIP(string) -> bool
ip.isCanonical(string) -> bool
IP:family() -> int
IP:isUnspecified() -> bool
IP:isLoopback() -> bool
IP:isLinkLocalMulticast() -> bool
IP:isLinkLocalUnicast() -> bool
IP:isGlobalUnicast() -> bool
cidr(string) -> CIDR
isCIDR(string) -> bool
CIDR:containsIP(string) -> bool
CIDR:containsIP(IP) -> bool
CIDR:containsCIDR(string) -> bool
CIDR:containsCIDR(CIDR) -> bool
CIDR:ip() -> IP
CIDR:masked() -> CIDR
CIDR:prefixLength() -> int
format.named(string) -> optional<Format>
Format:validate(string) -> optional<list<string>>
format.dns1123Label() -> Format
format.dns1123Subdomain() -> Format
format.dns1035Label() -> Format
format.qualifiedName() -> Format
format.dns1123LabelPrefix() -> Format
format.dns1123SubdomainPrefix() -> Format
format.dns1035LabelPrefix() -> Format
format.labelValue() -> Format
format.uri() -> Format
format.uuid() -> Format
format.byte() -> Format
format.date() -> Format
format.datetime() -> Format
semver(string) -> Semver
semver(string, bool) -> Semver
isSemver(string) -> bool
isSemver(string, bool) -> bool
Semver:major() -> int
Semver:minor() -> int
Semver:patch() -> int
Semver:isGreaterThan(Semver) -> bool
Semver:isLessThan(Semver) -> bool
Semver:compareTo(Semver) -> int
optional.of(A) -> optional<A>
optional.ofNonZeroValue(A) -> optional<A>
optional.none() -> optional<A>
optional<A>:hasValue() -> bool
optional<A>:value() -> A
optional<A>:or(optional<A>) -> optional<A>
optional<A>:orValue(A) -> A
timestamp:getFullYear() -> int
timestamp:getFullYear(string) -> int
timestamp:getMonth() -> int
timestamp:getMonth(string) -> int
timestamp:getDayOfYear() -> int
timestamp:getDayOfYear(string) -> int
timestamp:getDayOfMonth() -> int
timestamp:getDayOfMonth(string) -> int
timestamp:getDate() -> int
timestamp:getDate(string) -> int
timestamp:getDayOfWeek() -> int
timestamp:getDayOfWeek(string) -> int
timestamp:getHours() -> int
timestamp:getHours(string) -> int
timestamp:getMinutes() -> int
timestamp:getMinutes(string) -> int
timestamp:getSeconds() -> int
timestamp:getSeconds(string) -> int
timestamp:getMilliseconds() -> int
timestamp:getMilliseconds(string) -> int
duration:getHours() -> int
duration:getMinutes() -> int
duration:getSeconds() -> int
duration:getMilliseconds() -> int
Authorizer:path(string) -> PathCheck
PathCheck:check(string) -> Decision
Authorizer:group(string) -> GroupCheck
Authorizer:serviceAccount(string, string) -> Authorizer
GroupCheck:resource(string) -> ResourceCheck
ResourceCheck:subresource(string) -> ResourceCheck
ResourceCheck:namespace(string) -> ResourceCheck
ResourceCheck:name(string) -> ResourceCheck
ResourceCheck:fieldSelector(string) -> ResourceCheck
ResourceCheck:labelSelector(string) -> ResourceCheck
ResourceCheck:check(string) -> Decision
Decision:allowed() -> bool
Decision:reason() -> string
Decision:errored() -> bool
Decision:error() -> string
jsonpatch.escapeKey(string) -> string
";
