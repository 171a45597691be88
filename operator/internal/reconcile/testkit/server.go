package testkit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// ref names one object of the world.
type ref struct {
	kind schema.GroupVersionKind
	name types.NamespacedName
}

func (r ref) String() string { return r.kind.Kind + " " + r.name.Name }

// contents are objects as the API server had them at one time. They are never changed, so they can be shared.
type contents map[ref]client.Object

// server is the API server as the world knows it. Every write of the world goes through one of its clients, which keeps
// what the server answers, so its contents are the server's without a watch.
type server struct {
	tb       testing.TB
	ctx      context.Context
	direct   client.WithWatch
	contents contents
}

// write is one request that may change something.
type write struct {
	verb string
	ref  ref
	// object is the state before the write, or nil.
	before client.Object
}

func (w write) String() string { return w.verb + " " + w.ref.String() }

// gate is called around each write of a client. It makes the request by calling do, or does not.
type gate func(ctx context.Context, w write, do func() error) error

// client returns a client whose writes pass a gate.
func (s *server) client(pass gate) client.WithWatch {
	guard := func(ctx context.Context, verb string, obj any, do func() error) error {
		r := s.refOf(obj)
		answered := false
		err := pass(ctx, write{verb: verb, ref: r, before: s.contents[r]}, func() error {
			err := do()
			answered = err == nil
			return err
		})
		if answered && verb != "delete" {
			s.keep(r, obj.(client.Object))
		} else {
			s.refresh(r)
		}
		return err
	}
	return interceptor.NewClient(s.direct, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return guard(ctx, "create", obj, func() error { return c.Create(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return guard(ctx, "update", obj, func() error { return c.Update(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return guard(ctx, "patch", obj, func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return guard(ctx, "apply", obj, func() error { return c.Apply(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return guard(ctx, "delete", obj, func() error { return c.Delete(ctx, obj, opts...) })
		},
		DeleteAllOf: func(context.Context, client.WithWatch, client.Object, ...client.DeleteAllOfOption) error {
			return fmt.Errorf("deletecollection: a kind deletes one object at a time, with preconditions")
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			return guard(ctx, "update "+sub, obj, func() error { return c.SubResource(sub).Update(ctx, obj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return guard(ctx, "patch "+sub, obj, func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			return guard(ctx, "apply "+sub, obj, func() error { return c.SubResource(sub).Apply(ctx, obj, opts...) })
		},
	})
}

// refOf names what a write is about. An apply configuration made of an unstructured object is an object too.
func (s *server) refOf(obj any) ref {
	s.tb.Helper()
	o, ok := obj.(client.Object)
	if !ok {
		s.tb.Fatalf("write of a %T: the kit knows objects, and apply configurations made of unstructured ones", obj)
	}
	return s.refTo(o)
}

func (s *server) refTo(obj client.Object) ref {
	s.tb.Helper()
	gvk, err := apiutil.GVKForObject(obj, s.direct.Scheme())
	if err != nil {
		s.tb.Fatalf("type of %T: %v", obj, err)
	}
	return ref{kind: gvk, name: client.ObjectKeyFromObject(obj)}
}

// keep takes what the server answered to a write, unless that is the last there was of an object.
func (s *server) keep(r ref, answer client.Object) {
	s.tb.Helper()
	if answer.GetDeletionTimestamp() != nil && len(answer.GetFinalizers()) == 0 {
		s.refresh(r)
		return
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(answer)
	obj := s.empty(r.kind)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj)
	}
	if err != nil {
		s.tb.Fatalf("convert the answer for %s: %v", r, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as a read leaves it
	next := maps.Clone(s.contents)
	next[r] = obj
	s.contents = next
}

// refresh reads an object back after a write. The contents are replaced, not changed: caches hold on to old ones.
func (s *server) refresh(r ref) {
	s.tb.Helper()
	obj := s.empty(r.kind)
	next := maps.Clone(s.contents)
	switch err := s.direct.Get(s.ctx, r.name, obj); {
	case apierrors.IsNotFound(err):
		delete(next, r)
	case err != nil:
		s.tb.Fatalf("read %s back: %v", r, err)
	default:
		next[r] = obj
	}
	s.contents = next
}

func (s *server) empty(gvk schema.GroupVersionKind) client.Object {
	s.tb.Helper()
	raw, err := s.direct.Scheme().New(gvk)
	if err != nil {
		s.tb.Fatalf("new %s: %v", gvk.Kind, err)
	}
	return raw.(client.Object)
}

// cache is a client.Reader on contents that the kit replaces when it likes.
type cache struct {
	scheme   *runtime.Scheme
	known    map[schema.GroupVersionKind]bool // nil: every type
	contents func() contents
}

// Get reads one object.
func (c *cache) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	gvk, err := c.check(obj)
	if err != nil {
		return err
	}
	found, there := c.contents()[ref{kind: gvk, name: key}]
	if !there {
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
	}
	return c.scheme.Convert(found.DeepCopyObject(), obj, nil)
}

// List reads the objects of a namespace, by labels and by the index of controllers.
func (c *cache) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, c.scheme)
	if err != nil {
		return err
	}
	gvk.Kind = gvk.Kind[:len(gvk.Kind)-len("List")]
	if c.known != nil && !c.known[gvk] {
		return fmt.Errorf("list of %s: the subject declares it in neither Owns nor Reads", gvk.Kind)
	}
	options := (&client.ListOptions{}).ApplyOptions(opts)
	var items []runtime.Object
	refs := slices.SortedFunc(maps.Keys(c.contents()), func(a, b ref) int { return compare(a, b) })
	for _, r := range refs {
		obj := c.contents()[r]
		if r.kind == gvk && (options.Namespace == "" || r.name.Namespace == options.Namespace) && selects(options, obj) {
			items = append(items, obj.DeepCopyObject())
		}
	}
	return meta.SetList(list, items)
}

func (c *cache) check(obj runtime.Object) (schema.GroupVersionKind, error) {
	gvk, err := apiutil.GVKForObject(obj, c.scheme)
	if err == nil && c.known != nil && !c.known[gvk] {
		err = fmt.Errorf("read of a %s: the subject declares it in neither Owns nor Reads", gvk.Kind)
	}
	return gvk, err
}
