package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/kueue/pkg/podset"
)

func aJob() *job {
	found := newJob().(*job)
	found.Unstructured.Object["spec"] = map[string]any{
		"suspend":         true,
		"coordinator":     map[string]any{"template": nil},
		"parameterServer": map[string]any{"shards": int64(2)},
		"replicas": map[string]any{
			"count": int64(4),
			"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
				"name":      ownContainer,
				"image":     "example",
				"resources": map[string]any{"requests": map[string]any{"cpu": int64(2)}},
			}}}},
		},
	}

	return found
}

func infos(selector map[string]string, replicas int32) []podset.PodSetInfo {
	return []podset.PodSetInfo{
		{NodeSelector: selector, Count: 1},
		{NodeSelector: selector, Count: 2},
		{
			NodeSelector: selector,
			Count:        replicas,
			Tolerations:  []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}},
		},
	}
}

func TestItsPodsAreThoseOfItsRoles(t *testing.T) {
	sets, err := aJob().PodSets()
	if err != nil || len(sets) != 3 {
		t.Fatalf("got %v, %v", sets, err)
	}

	for index, want := range []int32{1, 2, 4} {
		if sets[index].Count != want || sets[index].Template.Spec.Containers[0].Name != ownContainer {
			t.Errorf("got %+v", sets[index])
		}
	}

	container := sets[2].Template.Spec.Containers[0]
	if container.Resources.Requests.Cpu().Value() != 2 || container.Image != "" {
		t.Errorf("got %+v", container)
	}
}

func TestWhatAFlavorBringsIsTakenBack(t *testing.T) {
	one := aJob()
	one.SetAnnotations(map[string]string{leastReplicas: "1"})

	before, _ := one.PodSets()
	if err := one.RunWithPodSetsInfo(infos(map[string]string{"pool": "a"}, 3)); err != nil {
		t.Fatal(err)
	}

	running, _ := one.PodSets()
	for _, each := range running {
		if each.Template.Spec.NodeSelector["pool"] != "a" {
			t.Errorf("%s goes to %v", each.Name, each.Template.Spec.NodeSelector)
		}
	}

	if one.IsSuspended() || running[2].Count != 3 || *running[2].MinCount != 1 {
		t.Errorf("it runs with %+v", running[2])
	}

	one.Suspend()

	restored := []podset.PodSetInfo{}
	for _, each := range before {
		restored = append(restored, podset.FromPodSet(&each))
	}

	if !one.RestorePodSetsInfo(restored) || !one.IsSuspended() {
		t.Error("nothing was restored")
	}

	if after, _ := one.PodSets(); !equality.Semantic.DeepEqual(before, after) {
		t.Errorf("got %+v, want %+v", after, before)
	}
}

func TestItIsActiveUntilItsStatusSaysOtherwiseOfThisSpec(t *testing.T) {
	one := aJob()
	one.SetGeneration(2)

	suspended := map[string]any{"type": "Suspended", "status": "True"}
	for _, each := range []struct {
		status map[string]any
		want   bool
	}{
		{map[string]any{}, true},
		{map[string]any{"observedGeneration": int64(1), "conditions": []any{suspended}}, true},
		{map[string]any{"observedGeneration": int64(2), "conditions": []any{suspended}}, false},
		{map[string]any{
			"observedGeneration": int64(2), "conditions": []any{suspended}, "replicas": int64(1),
		}, true},
		{map[string]any{"conditions": []any{map[string]any{"type": "Complete", "status": "True"}}}, false},
	} {
		one.Unstructured.Object["status"] = each.status
		if got := one.IsActive(); got != each.want {
			t.Errorf("%v: got %v", each.status, got)
		}
	}
}

func TestANumberOfReplicasThatIsNoneIsRefused(t *testing.T) {
	for _, text := range []string{"0", "-1", "many", "1.5"} {
		one := aJob()
		one.SetAnnotations(map[string]string{leastReplicas: text})

		if _, err := one.PodSets(); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestAReplicaOfSeveralProcessesIsAsManyPods(t *testing.T) {
	for _, several := range [][]string{partitions, ranks} {
		one := aJob()
		one.set(int64(3), several)

		sets, err := one.PodSets()
		if err != nil || sets[2].Count != 12 || sets[2].MinCount != nil {
			t.Fatalf("got %+v, %v", sets, err)
		}

		restored := []podset.PodSetInfo{}
		for _, each := range sets {
			restored = append(restored, podset.FromPodSet(&each))
		}

		if err := one.RunWithPodSetsInfo(restored); err != nil || one.number(replicaCount) != 4 {
			t.Errorf("it runs with %d replicas, %v", one.number(replicaCount), err)
		}
	}
}

func TestAGridSaysHowManyPodsAReplicaHas(t *testing.T) {
	one := aJob()
	one.set("2x3", grid)

	if sets, err := one.PodSets(); err != nil || sets[2].Count != 24 {
		t.Errorf("got %+v, %v", sets, err)
	}

	one.set(int64(6), partitions)

	if sets, err := one.PodSets(); err != nil || sets[2].Count != 24 {
		t.Errorf("got %+v, %v", sets, err)
	}

	one.SetAnnotations(map[string]string{leastReplicas: "2"})

	if _, err := one.PodSets(); err == nil {
		t.Error("it could begin with a part of a replica")
	}
}

func TestNoPartOfAReplicaIsAdmitted(t *testing.T) {
	for _, several := range [][]string{partitions, ranks} {
		one := aJob()
		one.SetAnnotations(map[string]string{leastReplicas: "2"})
		one.set(int64(2), several)

		if _, err := one.PodSets(); err == nil {
			t.Error("it could begin with three pods of two replicas")
		}
	}
}
