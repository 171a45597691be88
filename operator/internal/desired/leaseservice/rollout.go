package leaseservice

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// annotationApplied is on the StatefulSet, and says which template was applied last, and from what.
//
// The template is there as a whole and not as a hash: while a change of the operator's waits, the one before it is still to
// be put right when somebody edits it, and still to be scaled. The live template would not do, since that edit is in it.
const annotationApplied = "dist.system/applied-template"

// idLength is the number of hexadecimal digits by which a change is approved.
const idLength = 10

// Pending is a change of the pods that nobody asked for in the spec: another operator makes them otherwise, or has another
// default image.
type Pending struct {
	// ID names exactly this change.
	ID string
	// What says what would change.
	What string
}

// applied is the content of the annotation.
type applied struct {
	// Inputs is a hash of what of the spec the template is made of.
	Inputs string `json:"inputs"`
	// Template is the template as it was built.
	Template corev1.PodTemplateSpec `json:"template"`
}

// Settle keeps a change of the operator's from the pods until it is allowed: want, the StatefulSet as it should be, then gets
// the template that was applied last. A change of the spec is never kept, and takes the operator's along: the pods are
// replaced in any case. Live is the StatefulSet that there is, or nil.
func Settle(ls *v1alpha1.LeaseService, want, live *appsv1.StatefulSet, allowed func(Pending) bool) (*Pending, error) {
	inputs, err := templateInputs(ls)
	if err != nil {
		return nil, err
	}
	now := applied{Inputs: inputs, Template: want.Spec.Template}
	if before, ok := appliedTo(live); ok && before.Inputs == inputs {
		pending, err := pendingBetween(before.Template, now.Template)
		if err != nil {
			return nil, err
		}
		if pending != nil && !allowed(*pending) {
			want.Spec.Template = before.Template
			return pending, record(want, before)
		}
	}
	return nil, record(want, now)
}

func record(set *appsv1.StatefulSet, what applied) error {
	content, err := json.Marshal(what)
	if err != nil {
		return fmt.Errorf("encode the template of the pods: %w", err)
	}
	if set.Annotations == nil {
		set.Annotations = map[string]string{}
	}
	set.Annotations[annotationApplied] = string(content)
	return nil
}

// appliedTo reads the annotation. One that somebody has spoilt counts as none.
func appliedTo(set *appsv1.StatefulSet) (applied, bool) {
	var out applied
	if set == nil || json.Unmarshal([]byte(set.Annotations[annotationApplied]), &out) != nil {
		return applied{}, false
	}
	return out, out.Inputs != ""
}

// templateInputs is a hash of the spec without what is known not to be in the template. A field that is new here counts as one
// that is: at worst, pods are replaced when it is changed, which the builder would have done too.
func templateInputs(ls *v1alpha1.LeaseService) (string, error) {
	spec := ls.Spec.DeepCopy()
	spec.Replicas, spec.ProgressDeadlineSeconds, spec.Paused = 0, 0, false
	spec.Storage, spec.NetworkPolicy, spec.AllowedClients, spec.Rollouts = nil, "", nil, nil
	if spec.TLS != nil {
		spec.TLS.ServerNames = nil
	}
	content, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("encode the spec: %w", err)
	}
	return hashOf(content), nil
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])[:idLength]
}

// pendingBetween is nil for equal templates.
func pendingBetween(before, after corev1.PodTemplateSpec) (*Pending, error) {
	old, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("encode the template of the pods: %w", err)
	}
	content, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encode the template of the pods: %w", err)
	}
	if bytes.Equal(old, content) {
		return nil, nil
	}
	return &Pending{ID: hashOf(content), What: differenceOf(before.Spec, after.Spec)}, nil
}

// differenceOf says what a person would look for, and that there is more if that is all.
func differenceOf(before, after corev1.PodSpec) string {
	if len(before.Containers) != 1 || len(after.Containers) != 1 {
		return "the containers"
	}
	var out []string
	old, now := before.Containers[0], after.Containers[0]
	if old.Image != now.Image {
		out = append(out, fmt.Sprintf("the image from %s to %s", old.Image, now.Image))
	}
	if strings.Join(old.Args, " ") != strings.Join(now.Args, " ") {
		out = append(out, "the flags of the lease service")
	}
	if len(out) == 0 {
		return "details of the pods"
	}
	return strings.Join(out, " and ")
}
