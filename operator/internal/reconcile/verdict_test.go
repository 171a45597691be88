package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var errCause = errors.New("read tcp 10.0.0.1:34567: connection reset")

func TestJudge(t *testing.T) {
	const normal, warning = corev1.EventTypeNormal, corev1.EventTypeWarning
	cases := []struct {
		name    string
		err     error
		want    Judgement
		returns bool // the error is returned to controller-runtime
	}{
		{"nothing wrong", nil, Judgement{Verdict: Done, Observed: true, EventType: normal}, false},
		{"waiting", Wait(time.Second, "Moving", "%d of 3", 2), Judgement{Verdict: Waiting, Reason: "Moving", Message: "2 of 3", RequeueAfter: time.Second, Observed: true, EventType: normal}, false},
		{"stalled", Stalled("Bad", "no"), Judgement{Verdict: Blocked, Reason: "Bad", Message: "no", Observed: true, EventType: warning}, false},
		{"unclear", Unknown(time.Minute, "Gone", "no answer"), Judgement{Verdict: Unclear, Reason: "Gone", Message: "no answer", RequeueAfter: time.Minute, EventType: warning}, false},
		{"held", &errHeld{message: "paused"}, Judgement{Verdict: Held, Reason: "Paused", Message: "paused", Observed: true, EventType: normal}, false},
		{"outdated", &errOutdated{cause: errCause}, Judgement{Verdict: Outdated}, false},
		{"transient", Transient(errCause, "Busy", "later"), Judgement{Verdict: Retrying, Reason: "Busy", Message: "later", EventType: warning}, true},
		{"terminal", Terminal(errCause, "Broken", "never"), Judgement{Verdict: Failed, Reason: "Broken", Message: "never", Observed: true, EventType: warning}, true},
		{"of no type", errCause, Judgement{Verdict: Retrying, Reason: "APIError", Message: "a pass failed and is made again; the operator's log has the error", EventType: warning}, true},
	}
	for _, c := range cases {
		for depth, err := range map[string]error{"": c.err, ", wrapped": fmt.Errorf("gather: %w", c.err), ", joined": errors.Join(c.err)} {
			if c.err == nil && depth != "" {
				continue
			}
			t.Run(c.name+depth, func(t *testing.T) {
				got := Judge(err)
				if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Judgement{}, "Err")); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if c.returns != (got.Err != nil) {
					t.Errorf("Err is %v", got.Err)
				}
			})
		}
	}
}

func TestCausesStayReachable(t *testing.T) {
	for _, err := range []error{Transient(errCause, "Busy", "later"), Terminal(errCause, "Broken", "never"), &errOutdated{cause: errCause}} {
		if !errors.Is(err, errCause) {
			t.Errorf("%v hides its cause", err)
		}
	}
}

func TestClassify(t *testing.T) {
	things := schema.GroupResource{Resource: "things"}
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Thing"}, "a", field.ErrorList{field.Invalid(field.NewPath("spec", "size"), 0, "too small")})
	cases := []struct {
		name string
		err  error
		want Verdict
		says string
	}{
		{"no error", nil, Done, ""},
		{"changed since", apierrors.NewConflict(things, "a", errCause), Outdated, ""},
		{"made since", apierrors.NewAlreadyExists(things, "a"), Outdated, ""},
		{"not valid", invalid, Blocked, "spec.size"},
		{"a bad request", apierrors.NewBadRequest("strict decoding error"), Blocked, "strict decoding error"},
		{"forbidden", apierrors.NewForbidden(things, "a", errors.New("exceeded quota")), Retrying, "exceeded quota"},
		{"too many", apierrors.NewTooManyRequests("slow down", 1), Retrying, "TooManyRequests"},
		{"broken", apierrors.NewInternalError(errCause), Retrying, "InternalError"},
		{"unreachable", errCause, Retrying, "could not be reached"},
		{"too late", context.DeadlineExceeded, Retrying, "could not be reached"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := Judge(classify(c.err, "apply Thing a"))
			if got.Verdict != c.want || !strings.Contains(got.Message, c.says) {
				t.Errorf("got %s with %q, want %s with %q", got.Verdict, got.Message, c.want, c.says)
			}
			if strings.Contains(got.Message, "34567") {
				t.Errorf("the message has a port in it, and would differ each time: %s", got.Message)
			}
		})
	}
}

func TestSooner(t *testing.T) {
	for _, c := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {2, 3, 2}, {3, 2, 2}} {
		if got := sooner(c.a, c.b); got != c.want {
			t.Errorf("sooner(%d, %d) is %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
