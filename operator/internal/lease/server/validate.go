package server

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// MaxValue is how many bytes the value of a lease may have at most, whatever Options.MaxValue says.
const MaxValue = 64 << 10

// Bounds of what a request may carry, in bytes unless said otherwise.
const (
	maxHolder        = 256
	maxRequestID     = 128
	maxMetadata      = 16 // entries
	maxMetadataKey   = 64
	maxMetadataValue = 1 << 10
	maxReason        = 1 << 10
	maxPermits       = 1 << 20
	defaultPage      = 100
	maxPage          = 1000
)

// TTLs are the TTLs the service grants.
type TTLs struct {
	// Min and Max bound what a request may ask for; Default is for those that ask for nothing.
	Min, Max, Default time.Duration
}

// checker gathers what is wrong with a request.
type checker struct{ violations []Violation }

func (c *checker) require(ok bool, field, problem string, args ...any) {
	if !ok {
		c.violations = append(c.violations, Violation{Field: field, Problem: fmt.Sprintf(problem, args...)})
	}
}

func (c *checker) name(name string) { c.named("name", core.ValidateName(name)) }

func (c *checker) prefix(prefix string) { c.named("prefix", core.ValidatePrefix(prefix)) }

func (c *checker) named(field string, err error) {
	var bad *core.NameError
	if errors.As(err, &bad) {
		c.violations = append(c.violations, Violation{Field: field, Problem: bad.Problem()})
	}
}

func (c *checker) token(token int64) {
	c.require(token > 0, "token", "is %d; tokens are positive", token)
}

func (c *checker) atMost(field string, size, limit int) {
	c.require(size <= limit, field, "has %d bytes; at most %d are allowed", size, limit)
}

// text checks a string that is shown to others: its size, and that it is valid UTF-8, which the codec does not.
func (c *checker) text(field, text string, limit int) {
	c.atMost(field, len(text), limit)
	c.require(utf8.ValidString(text), field, "is not valid UTF-8")
}

func (c *checker) duration(field string, d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	c.require(d.IsValid() && d.AsDuration() >= 0, field, "is %v; it must be a duration that is not negative", d)
	return d.AsDuration()
}

func (c *checker) err() error {
	if len(c.violations) == 0 {
		return nil
	}
	return &InvalidError{Violations: c.violations}
}

// checkName checks a request that has a name and a token.
func checkHold(name string, token int64) error {
	var c checker
	c.name(name)
	c.token(token)
	return c.err()
}

// acquireRequest checks a request and fills in its defaults. A request without an id gets one, so that the
// service itself can repeat it when the name changes its owner.
func (s *Server) acquireRequest(req *leasev1.AcquireRequest, who caller) (core.AcquireRequest, error) {
	var c checker
	c.name(req.GetName())
	out := core.AcquireRequest{
		Name: req.GetName(), Holder: req.GetHolder(), Identity: who.identity, RequestID: req.GetRequestId(),
		Mode: core.Mode(req.GetMode()), Permits: req.GetPermits(), PermitsTotal: req.GetPermitsTotal(),
		Metadata: req.GetMetadata(), Value: req.GetValue(), Wait: req.GetWait() != nil,
	}
	if req.GetMode() == leasev1.LeaseMode_LEASE_MODE_UNSPECIFIED {
		out.Mode = core.Exclusive
	}
	if out.Holder == "" {
		out.Holder = who.label()
	}
	if out.RequestID == "" {
		out.RequestID = newRequestID()
	}
	c.mode(&out)
	out.TTL = c.ttl(req.GetTtl(), s.opts.TTLs)
	out.WaitFor = c.duration("wait.timeout", req.GetWait().GetTimeout())
	out.Waited = s.believed(c.duration("wait.waited", req.GetWait().GetWaited()), out.Name, who)
	c.text("holder", req.GetHolder(), maxHolder)
	c.text("request_id", req.GetRequestId(), maxRequestID)
	c.atMost("value", len(req.GetValue()), s.maxValue())
	c.metadata(req.GetMetadata())
	if req.GetWait().GetTimeout() != nil && out.WaitFor == 0 {
		out.Wait = false // waiting for no time is trying
	}
	s.refused.count(&c, out.TTL < s.opts.TTLs.Min)
	return out, c.err()
}

func (s *Server) maxValue() int { return cmp.Or(s.opts.MaxValue, MaxValue) }

// believed is what counts of how long a caller says that it has waited at another owner of the name. Soon after the name has changed its owner
// that is everything, since those who waited there come back in any order. Later nobody can have waited for longer than the owner has been
// serving the name, and a replica that passes a wait on has looked at that.
func (s *Server) believed(waited time.Duration, name string, who caller) time.Duration {
	if waited == 0 || who.relayed {
		return waited
	}
	if tenure := s.engine.Tenure(name); tenure > s.opts.Patience {
		return min(waited, tenure)
	}
	return waited
}

func (c *checker) mode(req *core.AcquireRequest) {
	switch req.Mode {
	case core.Exclusive, core.Shared:
		c.require(req.Permits == 0, "permits", "is %d; it must be 0 unless the mode is permits", req.Permits)
		c.require(req.PermitsTotal == 0, "permits_total", "is %d; it must be 0 unless the mode is permits", req.PermitsTotal)
	case core.Permits:
		if req.Permits == 0 {
			req.Permits = 1
		}
		c.require(req.PermitsTotal >= 1 && req.PermitsTotal <= maxPermits, "permits_total",
			"is %d; 1 to %d are allowed in mode permits", req.PermitsTotal, maxPermits)
		c.require(req.Permits >= 1 && req.Permits <= req.PermitsTotal, "permits",
			"is %d; 1 to permits_total, which is %d, are allowed", req.Permits, req.PermitsTotal)
	default:
		c.require(false, "mode", "is %d; exclusive, shared and permits are known", req.Mode)
	}
}

func (c *checker) ttl(asked *durationpb.Duration, ttls TTLs) time.Duration {
	if asked == nil {
		return ttls.Default
	}
	ttl := asked.AsDuration()
	c.require(asked.IsValid() && ttl >= ttls.Min && ttl <= ttls.Max, "ttl", "is %s; %s to %s are allowed", ttl, ttls.Min, ttls.Max)
	return ttl
}

func (c *checker) metadata(metadata map[string]string) {
	c.require(len(metadata) <= maxMetadata, "metadata", "has %d entries; at most %d are allowed", len(metadata), maxMetadata)
	for key, value := range metadata {
		c.require(key != "", "metadata", "has an empty key")
		c.text("metadata key", key, maxMetadataKey)
		if utf8.ValidString(key) { // the violation names it
			c.text("metadata["+key+"]", value, maxMetadataValue)
		}
	}
}

func newRequestID() string {
	var id [12]byte
	rand.Read(id[:])
	return base64.RawURLEncoding.EncodeToString(id[:])
}
