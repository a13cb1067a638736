package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// ownContainer is the container that every pod of a job has, though its template may not name it.
const ownContainer = "disttrain"

// readTemplate returns of a pod template what Kueue counts and where pods may run. Kueue compares it
// with what it was told before, so nothing may stand in it that an API server fills in.
func readTemplate(content map[string]any, path []string) (*corev1.PodTemplateSpec, error) {
	given := &corev1.PodTemplateSpec{}

	raw, _, err := unstructured.NestedFieldNoCopy(content, path...)
	if err != nil {
		return nil, err
	}

	if fields, is := raw.(map[string]any); is {
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, given)
		if err != nil {
			return nil, fmt.Errorf("%s is no pod template: %w", strings.Join(path, "."), err)
		}
	}

	template := &corev1.PodTemplateSpec{}
	template.Labels = given.Labels
	template.Annotations = given.Annotations
	template.Spec = corev1.PodSpec{
		InitContainers:    requests(given.Spec.InitContainers),
		Containers:        withOwn(requests(given.Spec.Containers)),
		NodeSelector:      given.Spec.NodeSelector,
		Affinity:          given.Spec.Affinity,
		Tolerations:       given.Spec.Tolerations,
		SchedulingGates:   given.Spec.SchedulingGates,
		PriorityClassName: given.Spec.PriorityClassName,
		RuntimeClassName:  given.Spec.RuntimeClassName,
	}

	return template, nil
}

// writeScheduling writes where pods may run, and nothing else of the template.
func writeScheduling(content map[string]any, path []string, template *corev1.PodTemplateSpec) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(template)
	if err != nil {
		return err
	}

	raw, given, err := unstructured.NestedFieldNoCopy(content, path...)
	if err != nil {
		return err
	}

	if given && raw == nil {
		unstructured.RemoveNestedField(content, path...)
	}

	for _, inner := range [][]string{
		{"metadata", "labels"},
		{"metadata", "annotations"},
		{"spec", "nodeSelector"},
		{"spec", "tolerations"},
		{"spec", "schedulingGates"},
	} {
		where := slices.Concat(path, inner)

		value, given, err := unstructured.NestedFieldNoCopy(fields, inner...)
		if err != nil {
			return err
		}

		if !given {
			unstructured.RemoveNestedField(content, where...)

			continue
		}

		if err := unstructured.SetNestedField(content, value, where...); err != nil {
			return err
		}
	}

	return nil
}

func requests(containers []corev1.Container) []corev1.Container {
	found := make([]corev1.Container, 0, len(containers))
	for _, each := range containers {
		found = append(found, corev1.Container{
			Name:          each.Name,
			Resources:     each.Resources,
			RestartPolicy: each.RestartPolicy,
		})
	}

	return found
}

func withOwn(containers []corev1.Container) []corev1.Container {
	isOwn := func(each corev1.Container) bool { return each.Name == ownContainer }
	if slices.ContainsFunc(containers, isOwn) {
		return containers
	}

	return append(containers, corev1.Container{Name: ownContainer})
}
