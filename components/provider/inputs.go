package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// inputs are the arguments of a component as a program sent them.
type inputs struct {
	// plain are the arguments that hold nothing secret: map[string]any, []any, string, bool, float64.
	plain map[string]any
	// eventual are the arguments of type map[string]pulumi.StringInput, by field: the only ones that may be secret.
	eventual map[string]map[string]pulumi.StringInput
	// unknown says that some argument has no value yet, which happens in previews only.
	unknown bool
	// dependencies are the URNs of the resources that the arguments come from.
	dependencies []string
}

// errSecretArgument is wrapped by the error for a secret that would be shown.
var errSecretArgument = errors.New("is secret, but would be in plain text in an object of the cluster: " +
	"put it into a Kubernetes Secret, and name that")

// read takes apart what a program sent for a component whose arguments are of the type args.
func read(properties resource.PropertyMap, args reflect.Type) (*inputs, error) {
	in := &inputs{plain: map[string]any{}, eventual: map[string]map[string]pulumi.StringInput{}}
	seen := map[string]bool{}
	var errs []error
	for _, key := range properties.StableKeys() {
		value := properties[key]
		name := string(key)
		if strings.HasPrefix(name, "__") { // the SDKs' own
			continue
		}
		if field, ok := eventualField(args, name); ok {
			texts, err := in.texts(name, value, seen)
			errs = append(errs, err)
			in.eventual[field] = texts
			continue
		}
		plain, err := in.value(name, value, seen)
		errs = append(errs, err)
		if plain != nil {
			in.plain[name] = plain
		}
	}
	in.dependencies = slices.Sorted(maps.Keys(seen))
	return in, errors.Join(errs...)
}

// value returns the plain value, nil for one that is null or unknown.
func (in *inputs) value(path string, value resource.PropertyValue, seen map[string]bool) (any, error) {
	value, secret := in.open(value, seen)
	switch {
	case secret:
		return nil, fmt.Errorf("%s %w", path, errSecretArgument)
	case value.IsNull():
		return nil, nil
	case value.IsObject():
		object := map[string]any{}
		var errs []error
		for _, key := range value.ObjectValue().StableKeys() {
			item, err := in.value(path+"."+string(key), value.ObjectValue()[key], seen)
			errs = append(errs, err)
			if item != nil {
				object[string(key)] = item
			}
		}
		return object, errors.Join(errs...)
	case value.IsArray():
		list := make([]any, 0, len(value.ArrayValue()))
		var errs []error
		for i, element := range value.ArrayValue() {
			item, err := in.value(fmt.Sprintf("%s[%d]", path, i), element, seen)
			errs = append(errs, err)
			list = append(list, item)
		}
		return list, errors.Join(errs...)
	case value.IsString(), value.IsBool(), value.IsNumber():
		return value.V, nil
	default:
		return nil, fmt.Errorf("%s is %s, which no argument takes", path, value.TypeString())
	}
}

// texts returns the texts of an argument that may be secret. An unknown map of texts makes the component unknown.
func (in *inputs) texts(
	path string, value resource.PropertyValue, seen map[string]bool,
) (map[string]pulumi.StringInput, error) {
	value, _ = in.open(value, seen)
	if value.IsNull() {
		return nil, nil
	}
	if !value.IsObject() {
		return nil, fmt.Errorf("%s is %s, but must be texts by key", path, value.TypeString())
	}
	texts := map[string]pulumi.StringInput{}
	for key, item := range value.ObjectValue() {
		text, _ := in.open(item, seen)
		switch {
		case text.IsString():
			texts[string(key)] = pulumi.ToSecret(pulumi.String(text.StringValue())).(pulumi.StringOutput)
		case !in.unknown:
			return nil, fmt.Errorf("%s.%s is %s, but must be a text", path, key, text.TypeString())
		}
	}
	return texts, nil
}

// open takes off what wraps a value: that it is secret, that it comes from resources, that it is not known.
func (in *inputs) open(value resource.PropertyValue, seen map[string]bool) (inner resource.PropertyValue, secret bool) {
	for {
		switch {
		case value.IsSecret():
			secret, value = true, value.SecretValue().Element
		case value.IsOutput():
			output := value.OutputValue()
			for _, urn := range output.Dependencies {
				seen[string(urn)] = true
			}
			secret = secret || output.Secret
			if !output.Known {
				in.unknown = true
				return resource.NewNullProperty(), secret
			}
			value = output.Element
		case value.IsComputed():
			in.unknown = true
			return resource.NewNullProperty(), secret
		default:
			return value, secret
		}
	}
}

// decode sets args, a pointer to the struct of arguments. A field is found by its JSON name, else by its name in Go.
func (in *inputs) decode(args any) error {
	if err := in.parseDurations(reflect.TypeOf(args).Elem()); err != nil {
		return err
	}
	data, err := json.Marshal(in.plain)
	if err != nil {
		return fmt.Errorf("encode the arguments: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(args); err != nil {
		return fmt.Errorf("arguments: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	target := reflect.ValueOf(args).Elem()
	for field, texts := range in.eventual {
		target.FieldByName(field).Set(reflect.ValueOf(texts))
	}
	return nil
}

// parseDurations turns durations such as "1m30s" into what JSON has for them, which is nanoseconds.
func (in *inputs) parseDurations(args reflect.Type) error {
	for field := range args.Fields() {
		if field.Type != reflect.TypeFor[time.Duration]() {
			continue
		}
		for name, value := range in.plain {
			text, ok := value.(string)
			if !ok || !strings.EqualFold(name, field.Name) {
				continue
			}
			duration, err := time.ParseDuration(text)
			if err != nil {
				return fmt.Errorf("arguments: %s: %q is no duration; allowed is one such as 1m30s", name, text)
			}
			in.plain[name] = duration
		}
	}
	return nil
}

// eventualField returns the name of the field of that argument, if its texts may be unknown or secret.
func eventualField(args reflect.Type, argument string) (field string, ok bool) {
	for f := range args.Fields() {
		if f.Type == reflect.TypeFor[map[string]pulumi.StringInput]() && strings.EqualFold(f.Name, argument) {
			return f.Name, true
		}
	}
	return "", false
}
