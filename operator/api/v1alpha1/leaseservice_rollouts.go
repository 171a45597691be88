package v1alpha1

// OperatorChangePolicy says when pods are replaced because the operator, and not the spec, is another.
//
// +kubebuilder:validation:Enum=Approve;Window;Automatic
type OperatorChangePolicy string

const (
	// OperatorChangesApprove waits for somebody to approve the very change.
	OperatorChangesApprove OperatorChangePolicy = "Approve"
	// OperatorChangesWindow waits for the maintenance window, or for an approval.
	OperatorChangesWindow OperatorChangePolicy = "Window"
	// OperatorChangesAutomatic waits for nothing.
	OperatorChangesAutomatic OperatorChangePolicy = "Automatic"
)

// LeaseServiceRollouts says when a change of the pods takes effect that is not of the spec.
//
// +kubebuilder:validation:XValidation:rule="(has(self.operatorChanges) && self.operatorChanges == 'Window') == has(self.window)",message="spec.rollouts.window is set if, and only if, spec.rollouts.operatorChanges is Window"
type LeaseServiceRollouts struct {
	// OperatorChanges is what becomes of a change that another version or configuration of the operator makes: Approve
	// (it is pending until somebody sets the annotation dist.system/approve-rollout to status.pendingRollout.id), Window
	// (or until the window opens) or Automatic. Left out: as the operator's configuration says, which is Approve by
	// default. A change of the spec takes effect at once, and takes what is pending along.
	//
	// +optional
	OperatorChanges OperatorChangePolicy `json:"operatorChanges,omitempty"`

	// Window is the maintenance window.
	//
	// +optional
	Window *LeaseServiceWindow `json:"window,omitempty"`
}

// LeaseServiceWindow is open on some days of the week. All of it is UTC.
type LeaseServiceWindow struct {
	// Days on which it opens, as Mon, Tue, Wed, Thu, Fri, Sat and Sun. None: every day.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=7
	// +kubebuilder:validation:items:Enum=Mon;Tue;Wed;Thu;Fri;Sat;Sun
	Days []string `json:"days,omitempty"`

	// Start is the time of the day at which it opens: "02:30".
	//
	// +required
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`

	// DurationMinutes is how long a rollout may begin from then on; one that began goes on to its end. Zero, or
	// leaving it out, means 60.
	//
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1440
	DurationMinutes int32 `json:"durationMinutes,omitempty"`
}

// AnnotationApproveRollout on a LeaseService approves the pending rollout of that id.
const AnnotationApproveRollout = "dist.system/approve-rollout"

// ConditionPendingRollout is True while a change of the pods waits that the operator, and not the spec, asks for.
const ConditionPendingRollout = "PendingRollout"
