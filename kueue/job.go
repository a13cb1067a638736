package main

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta1"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	"sigs.k8s.io/kueue/pkg/podset"
)

// leastReplicas is the annotation by which Kueue's users say that a batch/v1 Job may run with fewer pods.
const leastReplicas = "kueue.x-k8s.io/job-min-parallelism"

var (
	kind          = schema.GroupVersionKind{Group: "disttrain.dev", Version: "v1alpha1", Kind: "DistTrainJob"}
	suspend       = []string{"spec", "suspend"}
	replicaCount  = []string{"spec", "replicas", "count"}
	partitions    = []string{"spec", "replicas", "partitions"}
	grid          = []string{"spec", "replicas", "grid"}
	ranks         = []string{"spec", "replicas", "ranks"}
	shardCount    = []string{"spec", "parameterServer", "shards"}
	coordinatorAt = []string{"spec", "coordinator", "template"}
	shardsAt      = []string{"spec", "parameterServer", "template"}
	replicasAt    = []string{"spec", "replicas", "template"}
)

// job is a DistTrainJob as Kueue sees one: something that can be suspended, and sets of pods.
type job struct {
	unstructured.Unstructured
}

var _ jobframework.GenericJob = (*job)(nil)

func newJob() jobframework.GenericJob {
	empty := &job{}
	empty.SetGroupVersionKind(kind)

	return empty
}

func (j *job) Object() client.Object { return &j.Unstructured }

func (j *job) GVK() schema.GroupVersionKind { return kind }

func (j *job) IsSuspended() bool {
	found, _, _ := unstructured.NestedBool(j.content(), suspend...)

	return found
}

func (j *job) Suspend() { j.setSuspended(true) }

// PodSets tells the pods of the three roles: what they ask for stands in their templates. A replica of several
// processes is as many pods.
func (j *job) PodSets() ([]kueue.PodSet, error) {
	roles := j.roles()
	found := make([]kueue.PodSet, 0, len(roles))

	least, err := j.least()
	if err != nil {
		return nil, err
	}

	for _, each := range roles {
		template, err := readTemplate(j.content(), each.template)
		if err != nil {
			return nil, err
		}

		found = append(found, kueue.PodSet{
			Name:     each.name,
			Template: *template,
			Count:    each.count,
		})
	}

	found[len(found)-1].MinCount = least

	return found, nil
}

// RunWithPodSetsInfo resumes the job on the nodes, and with the replicas, for which there is quota.
func (j *job) RunWithPodSetsInfo(infos []podset.PodSetInfo) error {
	roles := j.roles()
	if len(infos) != len(roles) {
		return podset.BadPodSetsInfoLenError(len(roles), len(infos))
	}

	for index, each := range roles {
		template, err := readTemplate(j.content(), each.template)
		if err != nil {
			return err
		}

		if err := podset.Merge(&template.ObjectMeta, &template.Spec, infos[index]); err != nil {
			return err
		}

		if err := writeScheduling(j.content(), each.template, template); err != nil {
			return err
		}
	}

	j.setReplicas(infos)
	j.setSuspended(false)

	return nil
}

// RestorePodSetsInfo takes back what RunWithPodSetsInfo did to templates and replicas.
func (j *job) RestorePodSetsInfo(infos []podset.PodSetInfo) bool {
	roles := j.roles()
	if len(infos) != len(roles) {
		return false
	}

	changed := j.setReplicas(infos)

	for index, each := range roles {
		template, err := readTemplate(j.content(), each.template)
		if err != nil {
			continue
		}

		if podset.RestorePodSpec(&template.ObjectMeta, &template.Spec, infos[index]) {
			changed = writeScheduling(j.content(), each.template, template) == nil || changed
		}
	}

	return changed
}

func (j *job) Finished() (message string, success, finished bool) {
	if complete, holds := j.condition("Complete"); holds {
		return complete, true, true
	}

	failed, holds := j.condition("Failed")

	return failed, false, holds
}

// IsActive tells whether quota is still in use: the status must speak of this very spec.
func (j *job) IsActive() bool {
	if _, _, finished := j.Finished(); finished {
		return false
	}

	pods, _, _ := unstructured.NestedInt64(j.content(), "status", "replicas")
	observed, _, _ := unstructured.NestedInt64(j.content(), "status", "observedGeneration")
	_, suspended := j.condition("Suspended")

	return !suspended || observed < j.GetGeneration() || pods > 0
}

func (j *job) PodsReady() bool {
	_, shards := j.condition("ParametersAvailable")
	_, replicas := j.condition("ReplicasAvailable")

	return shards && replicas
}

// content is what the functions of package unstructured work on.
func (j *job) content() map[string]any { return j.Unstructured.Object }

type role struct {
	name     kueue.PodSetReference
	template []string
	count    int32
}

// roles ends with the replicas, whose number alone may be another one than the job asks for.
func (j *job) roles() []role {
	return []role{
		{name: "coordinator", template: coordinatorAt, count: 1},
		{name: "shards", template: shardsAt, count: j.number(shardCount)},
		{name: "replicas", template: replicasAt, count: j.number(replicaCount) * j.processes()},
	}
}

// processes is the number of pods of each replica; partitions or ranks is 1.
func (j *job) processes() int32 { return j.divided() * j.number(ranks) }

// divided is the number of partitions, which a grid says, too, as 2x3. The API server lets in no other form.
func (j *job) divided() int32 {
	_, given, _ := unstructured.NestedInt64(j.content(), partitions...)
	text, _, _ := unstructured.NestedString(j.content(), grid...)

	rows, columns, is := strings.Cut(text, "x")
	if given || !is {
		return j.number(partitions)
	}

	high, _ := strconv.ParseInt(rows, 10, 16)
	wide, _ := strconv.ParseInt(columns, 10, 16)

	return int32(max(1, high*wide))
}

// least is the number of replicas with which the job may begin; nil: with no fewer than it asks for.
func (j *job) least() (*int32, error) {
	text, given := j.GetAnnotations()[leastReplicas]
	if !given {
		return nil, nil
	}

	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil || number < 1 {
		return nil, jobframework.UnretryableError(fmt.Sprintf(
			"metadata.annotations[%s] must be a whole number of at least 1, got %q", leastReplicas, text,
		))
	}

	if several := j.processes(); several > 1 {
		return nil, jobframework.UnretryableError(fmt.Sprintf(
			"metadata.annotations[%s] must not be given where spec.replicas.partitions, grid or ranks is more than 1, got %d: "+
				"there could be quota for a part of a replica", leastReplicas, several,
		))
	}

	result := min(int32(number), j.number(replicaCount))

	return &result, nil
}

func (j *job) setReplicas(infos []podset.PodSetInfo) bool {
	_, elastic := j.GetAnnotations()[leastReplicas]
	count := infos[len(infos)-1].Count / j.processes()

	if !elastic || count == j.number(replicaCount) {
		return false
	}

	j.set(int64(count), replicaCount)

	return true
}

func (j *job) setSuspended(value bool) { j.set(value, suspend) }

// set panics where the path leads through something that is no object: the API server lets none in.
func (j *job) set(value any, path []string) {
	if err := unstructured.SetNestedField(j.content(), value, path...); err != nil {
		panic(fmt.Sprintf("%s %s: %v", kind.Kind, j.GetName(), err))
	}
}

// number is a count, for which the API server writes a default of 1.
func (j *job) number(path []string) int32 {
	found, given, _ := unstructured.NestedInt64(j.content(), path...)
	if !given {
		return 1
	}

	return int32(found)
}

func (j *job) condition(name string) (message string, holds bool) {
	all, _, _ := unstructured.NestedSlice(j.content(), "status", "conditions")
	for _, each := range all {
		fields, _ := each.(map[string]any)
		if fields["type"] == name {
			message, _ = fields["message"].(string)

			return message, fields["status"] == string(metav1.ConditionTrue)
		}
	}

	return "", false
}
